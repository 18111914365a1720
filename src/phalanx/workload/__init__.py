"""What people ask for: jobs, gangs, parallel plans, queues and tenants."""
