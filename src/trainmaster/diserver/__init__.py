"""di-server: the REST API through which the coordinator of a DIJob or NerveXJob requests collectors and learners
(docs/di-server.md).

It stores the requested replicas in the job's status and answers with their URLs; the operator creates the pods. It has
no state of its own, so several servers may run at once. DI-engine's client exits after any 4xx or 5xx: temporary
errors are answered with 200 and ``success: false``, the only answer after which it retries.
"""
