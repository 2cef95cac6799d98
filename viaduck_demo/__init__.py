"""The demo, and a workload for deployments on trial: users of Viaduck that ship with it, and no part of the product."""
