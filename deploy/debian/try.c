/* try.c - opens a cache with the installed library and asks it for a chunk that is not there. */
#include <kvtier/kvtier.h>
#include <stdio.h>

int main(void)
{
	struct kvt_config config;
	struct kvt_key key = {{1}};
	struct kvt_lookup found;
	struct kvt *cache;

	kvt_config_init(&config, sizeof(config));
	config.l1_capacity = (uint64_t)64 << 20;
	if (kvt_open(&config, &cache) != KVT_OK)
		return 1;
	if (kvt_lookup(cache, &key, 1, 0, NULL, &found) == KVT_OK)
		printf("libkvtier %s: %zu chunks found\n", kvt_version(), found.hits);
	kvt_close(cache);
	return 0;
}
