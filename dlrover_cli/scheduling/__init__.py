"""Whether, where and at whose cost a job runs: sessions, queues and the services they ask."""
