"""kvtier in Python: libkvtier by ctypes, and a KV connector for vLLM (kvtier.vllm)."""
