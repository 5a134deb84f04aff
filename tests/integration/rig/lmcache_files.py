"""LMCache's configuration files as the guides of model servers print them, for memory and for a disk."""

CPU = """\
# lmcache_config.yaml
# 256 Tokens per KV Chunk
chunk_size: 256
# 5GB of Pinned CPU memory
max_local_cpu_size: 5.0 # Changes with Model Size
"""
NVME = """\
# lmcache_config.yaml
# 256 Tokens per KV Chunk
chunk_size: 256
# Enable Disk backend
local_disk: "file://tmp/cache/" # Fixed for SM customers
# 5GB of Disk memory
max_local_disk_size: 5.0 # Changes with Model Size
# Disable OS page cache in favor of CPU Pinned Memory
extra_config: {'use_odirect': True} # Fixed for SM customers
# 5GB of Pinned CPU memory
max_local_cpu_size: 5.0 # default
"""
