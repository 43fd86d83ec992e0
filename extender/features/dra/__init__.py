"""GPUs of NVIDIA's DRA driver: allocates the claims of our DeviceClass, and kube-scheduler keeps to it."""
