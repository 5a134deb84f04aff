/*
 * fuzz_kube.c - any bytes as what the API of Kubernetes says: pages, and the lines of a watch.
 *
 * The first byte chooses the pool. Each line is read as an event and as a page; what is accepted goes into
 * the table, and the table becomes workers. What is said is bounded and printable, each URL is one and there
 * once, and an object without endpoints is no worker.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/label_selector.h"
#include "fleet/discovery/kube_workers.h"
#include "kvway/route.h"
#include "settings/address.h"
#include "tests/fuzz/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const pools =
	"discovery: {kubernetes: {pools: [{selector: 'app=vllm', port: http, models_from: m, weight_from: w}, "
	"{selector: '!x,app notin (b)', port: 8000}, {service: vllm}]}}\n";

static void check_word(const char *text, size_t room)
{
	size_t len = strnlen(text, room);

	require(len < room);
	for (size_t i = 0; i < len; i++)
		require(text[i] > ' ' && text[i] <= '~');
}

static void check_object(const struct kvw_kube_object *object)
{
	require(object->name[0] != '\0' && object->uid[0] != '\0');
	check_word(object->name, sizeof(object->name));
	check_word(object->uid, sizeof(object->uid));
	require(object->endpoint_count <= KVW_KUBE_ENDPOINTS_MOST);
	require(object->models.count <= KVW_KUBE_MODELS_MOST);
	require(object->weight == 0 || (object->weight >= 0.01 && object->weight <= 1));
	for (size_t i = 0; i < object->endpoint_count; i++) {
		check_word(object->endpoints[i].identity, sizeof(object->endpoints[i].identity));
		require(object->endpoints[i].port > 0);
	}
}

static void check_workers(const struct kvw_config *config, const struct kvw_kube_table *table)
{
	const struct kvw_kube_table empty = {.count = 0};
	const struct kvw_kube_table *const tables[] = {table, &empty, &empty};
	struct kvw_config *list = NULL;
	struct kvw_url url;
	uint64_t mark;
	size_t count;

	require(kvw_kube_workers(config, tables, &count, &mark, &list) == KVW_OK);
	require((list != NULL) == (count <= KVW_MAX_WORKERS));
	for (size_t i = 0; list != NULL && i < list->worker_count; i++) {
		require(kvw_url_split(kvw_slice_of(list->workers[i].url), &url) == KVW_ADDRESS_OK);
		require(list->workers[i].weight > 0);
		for (size_t k = 0; k < i; k++)
			require(strcmp(list->workers[i].url, list->workers[k].url) != 0);
	}
	kvw_config_destroy(list);
}

struct run {
	const struct kvw_pool_config *pool;
	struct kvw_kube_table table, incoming;
};

static void take_event(struct run *run, const char *text, size_t len)
{
	struct kvw_kube_event event;
	bool changed;

	if (kvw_kube_event_read(run->pool, text, len, &event) != KVW_OK)
		return;
	check_word(event.version, sizeof(event.version));
	require(strnlen(event.message, sizeof(event.message)) < sizeof(event.message));
	if (event.kind <= KVW_KUBE_DELETED) {
		check_object(&event.object);
		require(kvw_kube_table_apply(&run->table, &event, &changed) == KVW_OK);
	}
	kvw_kube_event_finish(&event);
}

static void take_page(struct run *run, const char *text, size_t len)
{
	struct kvw_kube_page page;

	if (kvw_kube_page_read(run->pool, text, len, &page) != KVW_OK)
		return;
	check_word(page.version, sizeof(page.version));
	check_word(page.next, sizeof(page.next));
	for (size_t i = 0; i < page.count; i++)
		check_object(&page.objects[i]);
	if (run->incoming.count == 0)
		kvw_kube_table_list_begin(&run->table, &run->incoming);
	require(kvw_kube_table_list_page(&run->incoming, &page) == KVW_OK);
}

/* Ascending by name, each once. */
static void check_table(const struct kvw_kube_table *table)
{
	for (size_t i = 0; i < table->count; i++) {
		check_object(&table->items[i].object);
		require(i == 0 || strcmp(table->items[i - 1].object.name, table->items[i].object.name) < 0);
		require(!table->items[i].gone || table->items[i].object.endpoint_count == 0);
	}
}

static struct kvw_slice no_label(const void *arg, struct kvw_slice key)
{
	(void)arg;
	require(kvw_label_key_is_valid(key));
	return key.len % 2 ? key : (struct kvw_slice){NULL, 0};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct kvw_config *config;
	struct run run = {.pool = NULL};
	const char *text = (const char *)data, *end;
	char message[64];

	if (config == NULL)
		require(kvw_config_parse("fuzz", pools, strlen(pools),
				kvw_strategies, stderr, &config) == KVW_OK);
	if (kvw_label_selector_is_valid((struct kvw_slice){text, size}))
		(void)kvw_label_selector_matches((struct kvw_slice){text, size}, no_label, NULL);
	if (size == 0)
		return 0;
	run.pool = &config->pools[data[0] % 3];
	for (text++, size--; size > 0; text = end + 1) {
		size_t len;

		end = memchr(text, '\n', size);
		len = end == NULL ? size : (size_t)(end - text);
		take_event(&run, text, len);
		take_page(&run, text, len);
		kvw_kube_status_read(text, len, message, sizeof(message));
		require(strnlen(message, sizeof(message)) < sizeof(message));
		if (end == NULL)
			break;
		size -= len + 1;
	}
	check_table(&run.table);
	check_workers(config, &run.table);
	require(kvw_kube_table_list_end(&run.table, &run.incoming, 7) == KVW_OK);
	check_table(&run.table);
	check_workers(config, &run.table);
	kvw_kube_table_finish(&run.table);
	kvw_kube_table_finish(&run.incoming);
	return 0;
}
