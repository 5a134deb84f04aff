/*
 * fuzz_worker_file.c - any bytes as a worker file, and as an entry of discovery.dns.
 *
 * A refusal says why in printable lines; what is accepted is complete, each URL once.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/discovery_url.h"
#include "fleet/discovery/worker_list.h"
#include "kvway/route.h"
#include "settings/address.h"
#include "tests/fuzz/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const starts[] = {"f.yaml:", NULL};

static void check_list(const struct kvw_config *list)
{
	struct kvw_url url;

	require(list->worker_count <= KVW_MAX_WORKERS);
	for (size_t i = 0; i < list->worker_count; i++) {
		const struct kvw_worker_config *worker = &list->workers[i];

		require(kvw_url_split(kvw_slice_of(worker->url), &url) == KVW_ADDRESS_OK);
		require(worker->api_key != NULL && worker->lmcache_instance != NULL);
		for (size_t k = 0; k < worker->models.count; k++)
			require(worker->models.items[k][0] != '\0');
		for (size_t k = 0; k < i; k++)
			require(strcmp(worker->url, list->workers[k].url) != 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *errors = NULL, *notes = NULL;
	size_t errors_size = 0, notes_size = 0;
	FILE *to_errors = open_memstream(&errors, &errors_size);
	FILE *to_notes = open_memstream(&notes, &notes_size);
	struct kvw_discovery_url url;
	struct kvw_config *list = NULL;
	enum kvw_err err;

	require(to_errors != NULL && to_notes != NULL);
	err = kvw_worker_file_parse("f.yaml", (const char *)data, size, to_errors, to_notes, &list);
	fclose(to_errors);
	fclose(to_notes);
	require(err == KVW_OK || err == KVW_EINVAL);
	require((err == KVW_OK) == (list != NULL));
	require((err == KVW_OK) == (errors_size == 0));
	check_lines(errors, starts);
	check_lines(notes, starts);
	if (list != NULL)
		check_list(list);
	kvw_config_destroy(list);
	free(errors);
	free(notes);
	if (kvw_discovery_url_split((struct kvw_slice){(const char *)data, size}, &url)) {
		require(url.name.len > 0 && url.name.len <= 253);
		require(url.srv == (url.port == 0));
		require(url.prefix.len == 0 || url.prefix.data[0] == '/');
	}
	return 0;
}
