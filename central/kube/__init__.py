"""The only folder that speaks to the API server.

    client.py   configuration and requests        objects.py  raw JSON -> facts, pure
    kinds.py    what is watched                   things.py   what is written, by kind
    watch.py    list and watch -> facts           effects.py  decisions -> calls -> facts
    review.py   tokens -> identities              leader.py   a Lease: who decides
    certificates.py  the centre's TLS in a Secret

Objects stay raw JSON: the client library's typed models cost ten times as much."""
