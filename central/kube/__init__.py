"""The only folder that speaks to the API server.

    client.py   requests                          places.py   where each kind is in the API
    objects.py  raw JSON -> facts, pure           kinds.py    what is watched
    watch.py    list and watch -> facts           things.py   what is written, by kind
    effects.py  decisions -> calls -> facts       tells.py    what users are told: status, Events
    review.py   tokens -> identities              leader.py   a Lease: who decides
    certificates.py  the centre's TLS in a Secret

Objects stay raw JSON: the client library's typed models cost ten times as much."""
