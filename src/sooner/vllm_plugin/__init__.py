"""Stock vLLM in the order of Sooner's policies: ``vllm serve ... --scheduling-policy hrrn``."""
