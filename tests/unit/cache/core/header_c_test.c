/*
 * header_c_test.c - the public headers alone, as C11 without extensions; a program over libkvtier.so.
 */
#include "kvtier/kvtier.h"
#include "kvtier/kvtier_fragments.h"
#include "kvtier/kvtier_io.h"

#include <stdio.h>
#include <string.h>

static int put_and_get(struct kvt *k)
{
	static const char text[] = "keys and values";
	struct kvt_item item;
	struct kvt_lease *lease;
	char back[sizeof(text)];

	memset(&item, 0, sizeof(item));
	item.size = sizeof(item);
	item.bytes = sizeof(text);
	item.key.bytes[0] = 1;
	if (kvt_put(k, &item, text) != KVT_OK || kvt_get(k, &item.key, 1, 0, &lease) != KVT_OK)
		return 1;
	if (kvt_copy(lease, 0, back, sizeof(back)) != sizeof(back))
		return 1;
	kvt_release(k, lease);
	return strcmp(back, text) == 0 ? 0 : 1;
}

int main(void)
{
	struct kvt_config config;
	struct kvt *k;
	enum kvt_status status;
	int result;

	kvt_config_init(&config, sizeof(config));
	config.l1_capacity = 1u << 20;
	status = kvt_open(&config, &k);
	if (status != KVT_OK) {
		fprintf(stderr, "%s\n", kvt_status_text(status));
		return 1;
	}
	result = put_and_get(k);
	kvt_close(k);
	return result;
}
