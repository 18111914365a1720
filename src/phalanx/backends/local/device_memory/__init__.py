"""Moving the device memory of running processes to the host and back, without their knowing."""
