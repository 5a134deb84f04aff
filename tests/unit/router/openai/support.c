/*
 * support.c - bodies in, what was understood out, for the tests of the scan.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai/scan_state.h"
#include "support.h"

static const char *const session_fields[] = {"session_id", "user"};
const struct kvw_scan_options test_options = {session_fields, 2};
const struct kvw_text_ops *test_kernel;

const struct kvw_text_ops *test_kernel_at(unsigned i)
{
	const struct kvw_text_ops *all[KVW_TEXT_OPS_MOST];
	unsigned count = 0;

	kvw_text_all_ops(all);
	while (all[count] != NULL)
		count++;
	return all[i % count];
}

static void *must(void *memory)
{
	if (memory == NULL)
		abort();
	return memory;
}

/* In a buffer of its own size, so that a sanitizer sees every byte read beyond it. */
static void feed_exactly(struct kvw_scan *scan, const char *data, size_t len)
{
	char *copy = must(malloc(len > 0 ? len : 1));

	memcpy(copy, data, len);
	kvw_scan_feed(scan, copy, len);
	free(copy);
}

static void keep(struct kvw_slice *slice, char *to, size_t size)
{
	size_t len = slice->len < size - 1 ? slice->len : size - 1;

	if (len > 0)
		memcpy(to, slice->data, len);
	to[len] = '\0';
	slice->data = to;
	slice->len = len;
}

static struct seen *take(struct kvw_scan *scan)
{
	struct seen *seen = must(calloc(1, sizeof(*seen)));
	struct kvw_route_request *request = &seen->request;

	seen->err = kvw_scan_finish(scan, request);
	keep(&request->model, seen->model, sizeof(seen->model));
	keep(&request->session, seen->session, sizeof(seen->session));
	keep(&request->previous_id, seen->previous, sizeof(seen->previous));
	if (request->chunk_count > MAX_CHUNKS || request->chain_count > MAX_CHAINS)
		abort();
	seen->chunks = must(calloc(request->chunk_count + 1, sizeof(*seen->chunks)));
	if (request->chunk_count > 0)
		memcpy(seen->chunks, request->chunks, request->chunk_count * sizeof(*seen->chunks));
	if (request->chain_count > 0)
		memcpy(seen->chain_ends, request->chain_ends,
			request->chain_count * sizeof(*seen->chain_ends));
	request->chunks = seen->chunks;
	request->chain_ends = seen->chain_ends;
	kvw_scan_destroy(scan);
	return seen;
}

static struct kvw_scan *begin(enum kvw_api api)
{
	struct kvw_scan *scan;

	if (kvw_scan_create(&test_options, &scan) != KVW_OK)
		abort();
	if (test_kernel != NULL)
		scan->ops = test_kernel;
	kvw_scan_reset(scan, api);
	return scan;
}

struct seen *see(enum kvw_api api, const char *body, size_t len, size_t piece)
{
	struct kvw_scan *scan = begin(api);

	if (piece == 0)
		piece = len > 0 ? len : 1;
	for (size_t at = 0; at < len; at += piece)
		feed_exactly(scan, body + at, len - at < piece ? len - at : piece);
	return take(scan);
}

struct seen *see_split(enum kvw_api api, const char *body, size_t len, size_t split)
{
	struct kvw_scan *scan = begin(api);

	feed_exactly(scan, body, split);
	feed_exactly(scan, body + split, len - split);
	return take(scan);
}

struct seen *see_text(enum kvw_api api, const char *body)
{
	return see(api, body, strlen(body), 0);
}

void seen_free(struct seen *seen)
{
	if (seen == NULL)
		return;
	free(seen->chunks);
	free(seen);
}

bool seen_same_prompt(const struct seen *a, const struct seen *b)
{
	const struct kvw_route_request *x = &a->request, *y = &b->request;

	return a->err == b->err && x->content_known == y->content_known && x->seed == y->seed &&
	       x->chunk_count == y->chunk_count && x->chain_count == y->chain_count &&
	       memcmp(a->chunks, b->chunks, x->chunk_count * sizeof(*a->chunks)) == 0 &&
	       memcmp(a->chain_ends, b->chain_ends, x->chain_count * sizeof(*a->chain_ends)) == 0;
}

bool seen_equal(const struct seen *a, const struct seen *b)
{
	const struct kvw_route_request *x = &a->request, *y = &b->request;

	return seen_same_prompt(a, b) && x->api == y->api && kvw_slice_equal(x->model, y->model) &&
	       kvw_slice_equal(x->session, y->session) &&
	       kvw_slice_equal(x->previous_id, y->previous_id) && x->stream == y->stream &&
	       x->include_usage == y->include_usage && x->choices == y->choices && x->answer_most == y->answer_most && x->teaches == y->teaches &&
	       x->token_ids == y->token_ids;
}

uint32_t seen_common(const struct seen *a, const struct seen *b)
{
	uint32_t count = 0;

	while (count < a->request.chunk_count && count < b->request.chunk_count &&
		a->chunks[count].hash == b->chunks[count].hash)
		count++;
	return count;
}

uint32_t seen_units(const struct seen *seen)
{
	return seen->request.chunk_count == 0 ? 0 : seen->chunks[seen->request.chunk_count - 1].end;
}

uint64_t test_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

char *test_file(const char *path, size_t *len)
{
	FILE *file = fopen(path, "rb");
	char *data = must(malloc(1 << 20));

	if (file == NULL) {
		fprintf(stderr, "cannot open %s\n", path);
		abort();
	}
	*len = fread(data, 1, (1 << 20) - 1, file);
	data[*len] = '\0';
	fclose(file);
	return data;
}

char *test_answer(const char *name, size_t *len)
{
	char path[4096];
	char *data, *body, *from, *to;
	size_t size;

	snprintf(path, sizeof(path), "%s/%s", TEST_DATA, name);
	data = test_file(path, &size);
	body = strstr(data, "\r\n\r\n");
	if (body == NULL)
		abort();
	body += 4;
	if (strstr(data, "transfer-encoding: chunked") == NULL) {
		*len = size - (size_t)(body - data);
		memmove(data, body, *len + 1);
		return data;
	}
	from = body;
	to = data;
	for (;;) {
		size_t chunk = strtoul(from, &from, 16);

		from += 2;
		if (chunk == 0)
			break;
		memmove(to, from, chunk);
		to += chunk;
		from += chunk + 2;
	}
	*to = '\0';
	*len = (size_t)(to - data);
	return data;
}
