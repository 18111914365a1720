"""What pages draw of the cluster as a whole: each device, what is waited for, what needs attention, and how it went."""
