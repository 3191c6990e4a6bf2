"""The Job controller: turns facts about Jobs and their pods into decisions.

job_store, job   what is known about Jobs, their pods and calls in flight
reconcile        one pass over the changed Jobs: job_admission (may pods be created?), then control
control          one Job: the next phase (policies, job_events, state_machine), written before any action;
                 then desired (PodGroup, objects, pods) and job_status (counts)
plugins/         what a Job's pods need to find each other; the extension point
"""
