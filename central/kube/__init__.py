"""The only package that talks to the API server: JSON to facts, decisions to requests.

Objects stay raw JSON, because the typed models of the kubernetes package cost ten times as much per object.

    resource_paths.py           group, version and path of every kind
    decode/                     raw JSON -> facts; pure
      api_kinds.py              the kinds that are watched, and what decodes each
      decoder.py                the decoder for given scheduler names and topology levels
      pod_decoder.py            pods: podspec.py, pod_affinity.py, pod_annotations.py, gang_annotations.py
      podgroup_decoder.py  policy_decoder.py  hypernode_decoder.py  storage_decoder.py
      job_decoder.py  job_tasks.py  batch_decoder.py            the batch API
      fields.py  quantities.py  topology_constraints.py         shared readers and their errors
    transport/                  the connection
      configuration.py          kubeconfig or ServiceAccount
      connection.py  http_client.py                             HTTP/1.1 on kept connections
      watch.py                  list and watch: one reflector per kind
      lease.py                  the Lease of the leader
      token_review.py           bearer tokens -> identities
      workers.py                worker pool, rate limiter
    write/                      decisions -> requests -> outcome facts
      executor.py               runs decisions on worker pools, with retries
      pod_requests.py           bindings and evictions
      volume_binding.py         volumes of pods that are bound late
      objects_writer.py         create, delete, patch any kind
      status_writer.py          PodGroup status, pod conditions, Events
      leader_label.py  default_queue.py
"""
