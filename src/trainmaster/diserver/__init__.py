"""di-server: where the coordinator of a DIJob or NerveXJob asks for collectors and learners (docs/di-server.md).

It declares on the job what is wanted and answers with URLs; the operator creates. So it keeps nothing, and several
may run at once. DI-engine's client dies of any 4xx or 5xx: whatever passes by itself is answered with 200 and
``success: false``, which is the only answer that it tries again after.
"""
