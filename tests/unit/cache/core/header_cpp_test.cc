/*
 * header_cpp_test.cc - the public headers alone, as C++17; a program over libkvtier.so.
 */
#include "kvtier/kvtier.h"
#include "kvtier/kvtier_fragments.h"
#include "kvtier/kvtier_io.h"

int main()
{
	kvt_config config{};
	kvt *k = nullptr;
	kvt_key key{};
	struct kvt_lookup found{}; /* a function has that name, too */

	kvt_config_init(&config, sizeof(config));
	config.l1_capacity = 1u << 20;
	if (kvt_open(&config, &k) != KVT_OK)
		return 1;
	const bool fine = kvt_lookup(k, &key, 1, KVT_ALL_TIERS, nullptr, &found) == KVT_OK &&
			  found.hits == 0;
	kvt_close(k);
	return fine ? 0 : 1;
}
