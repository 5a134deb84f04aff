/*
 * history.c - random work, recorded, ended anywhere, judged.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"
#include "store.h"
#include "io/testing/test_disk.h"

#define KEYS    24
#define TENANTS 3
#define MOST    16384 /* facts */
#define OPEN    5

enum fact_kind { PUT_BEGUN, PUT_DURABLE, ERASE_BEGUN, ERASE_DURABLE };

/* Something that was begun or acknowledged. `when` counts what the test does, `moment` what the
 * disk does. of: for ERASE_DURABLE the `when` of its beginning. */
struct fact {
	enum fact_kind kind;
	uint32_t key;
	uint64_t when, of;
	uint64_t moment;
};

struct history {
	const struct history_options *options;
	struct history_result *out;
	struct store store;
	struct kvt_disk *disk;
	struct kvt_io_layer layer;
	struct kvt_test_clock time;
	uint64_t random;
	uint64_t when;
	struct fact facts[MOST];
	size_t fact_count;
	uint64_t evictions;
	struct wish *open[OPEN]; /* under way */
	unsigned open_count;
};

static uint64_t draw(struct history *h, uint64_t below)
{
	uint64_t x = h->random += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (x ^ x >> 31) % below;
}

static void wrong(const struct history *h, const char *what, uint32_t key, uint64_t moment)
{
	fprintf(stderr,
		"WRONG: %s: chunk %u, moment %llu; --seed %llu --steps %u --capacity %llu\n", what,
		key, (unsigned long long)moment, (unsigned long long)h->options->seed,
		h->options->steps, (unsigned long long)h->options->capacity);
	abort();
}

static uint32_t tenant_of(uint32_t key)
{
	return key % TENANTS;
}

static void fact(struct history *h, enum fact_kind kind, uint32_t key, uint64_t of)
{
	if (h->fact_count == MOST)
		abort();
	h->facts[h->fact_count++] = (struct fact){
		.kind = kind,
		.key = key,
		.when = ++h->when,
		.of = of,
		.moment = kvt_disk_moment(h->disk),
	};
}

/* --- work -------------------------------------------------------------------------------------- */

static void set_item(struct kvt_item *item, uint32_t key)
{
	*item = (struct kvt_item){.size = sizeof(*item), .tokens = 256, .bytes = bytes_of(key)};
	item->tenant.bytes[0] = (uint8_t)tenant_of(key);
}

static void put(struct history *h, uint32_t key)
{
	struct kvt_key parent = key_of(key - 1);
	struct kvt_item item;
	bool announce = draw(h, 3) == 0;

	set_item(&item, key);
	if (draw(h, 2) == 0)
		item.parent = &parent;
	fact(h, PUT_BEGUN, key, 0);
	if (store_put_item(&h->store, key, &item, announce) == KVT_OK && announce)
		fact(h, PUT_DURABLE, key, 0);
	h->out->puts++;
}

/* Several at once, so that their operations and commits mix. */
static void put_many(struct history *h)
{
	struct wish *wishes[6];
	unsigned count = 2 + (unsigned)draw(h, 5);
	uint32_t first = 1 + (uint32_t)draw(h, KEYS);

	for (unsigned i = 0; i < count; i++) {
		uint32_t key = 1 + (first + i * 5) % KEYS;

		wishes[i] = wish_new(&h->store, KVT_TIER_WRITE, key, draw(h, 2) * 4096);
		set_item(&wishes[i]->item, key);
		wishes[i]->request.announce = draw(h, 2) == 0;
		fact(h, PUT_BEGUN, key, 0);
		h->store.tier->ops->submit(h->store.tier, &wishes[i]->request);
	}
	for (unsigned i = 0; i < count; i++) {
		if (wish_wait(&h->store, wishes[i]) == KVT_OK && wishes[i]->request.announce)
			fact(h, PUT_DURABLE, (uint32_t)wishes[i]->n, 0);
		wish_free(wishes[i]);
		h->out->puts++;
	}
}

/* What is there before a flush begins is durable when it has ended. */
static void flush(struct history *h)
{
	bool had[KEYS + 1];

	for (uint32_t key = 1; key <= KEYS; key++)
		had[key] = store_has(&h->store, key);
	if (store_flush(&h->store) != KVT_OK)
		abort();
	for (uint32_t key = 1; key <= KEYS; key++) {
		if (had[key])
			fact(h, PUT_DURABLE, key, 0);
	}
}

/* Reads and writes that are under way while what follows is done. */
static void begin_many(struct history *h)
{
	while (h->open_count < OPEN) {
		uint32_t key = 1 + (uint32_t)draw(h, KEYS);
		enum kvt_tier_verb verb = draw(h, 2) == 0 ? KVT_TIER_READ : KVT_TIER_WRITE;
		struct wish *w = wish_new(&h->store, verb, key, 0);

		if (verb == KVT_TIER_WRITE) {
			set_item(&w->item, key);
			fact(h, PUT_BEGUN, key, 0);
			h->out->puts++;
		}
		h->open[h->open_count++] = w;
		h->store.tier->ops->submit(h->store.tier, &w->request);
	}
	store_step(&h->store, 1 + (unsigned)draw(h, 4));
}

static void end_many(struct history *h)
{
	while (h->open_count > 0) {
		struct wish *w = h->open[--h->open_count];

		(void)wish_wait(&h->store, w);
		wish_free(w);
	}
}

static bool erase_hits(uint32_t kind, uint32_t what, uint32_t key)
{
	return kind == 2 || (kind == 0 && key == what) || (kind == 1 && tenant_of(key) == what);
}

static void erase(struct history *h)
{
	uint32_t kind = draw(h, 20) == 0 ? 2 : (uint32_t)draw(h, 2);
	uint32_t what = kind == 0 ? 1 + (uint32_t)draw(h, KEYS) : (uint32_t)draw(h, TENANTS);
	struct kvt_tenant tenant = {{(uint8_t)what}};
	uint64_t begun;
	size_t erased;
	enum kvt_status status = KVT_OK;

	for (uint32_t key = 1; key <= KEYS; key++) {
		if (erase_hits(kind, what, key))
			fact(h, ERASE_BEGUN, key, 0);
	}
	begun = h->when;
	if (kind == 0)
		status = store_erase(&h->store, what);
	else if (kind == 1)
		status = h->store.tier->ops->erase_tenant(h->store.tier, &tenant, &erased);
	else
		status = h->store.tier->ops->erase_all(h->store.tier, &erased);
	if (status != KVT_OK)
		abort();
	for (uint32_t key = 1; key <= KEYS; key++) {
		if (erase_hits(kind, what, key) && store_has(&h->store, key))
			wrong(h, "readable after its erase", key, 0);
	}
	h->out->erases++;
	if (draw(h, 3) == 0)
		return; /* never made durable on purpose */
	flush(h);
	for (uint32_t key = 1; key <= KEYS; key++) {
		if (erase_hits(kind, what, key))
			fact(h, ERASE_DURABLE, key, begun);
	}
}

static void open_store(struct history *h, struct store *s, const struct kvt_io_layer *layer)
{
	(void)h;
	s->config.io = layer;
	if (store_open(s) != KVT_OK) {
		fprintf(stderr, "cannot be opened: %s\n", s->why);
		wrong(h, "cannot be opened", 0, 0);
	}
}

static void reopen(struct history *h)
{
	h->evictions += store_stats(&h->store).evictions;
	store_close(&h->store);
	open_store(h, &h->store, &h->layer);
	for (uint32_t key = 1; key <= KEYS; key++) {
		if (store_has(&h->store, key))
			fact(h, PUT_DURABLE, key, 0);
	}
}

static void work(struct history *h)
{
	switch (draw(h, 12)) {
	case 0:
	case 1:
	case 2:
	case 3:
		put(h, 1 + (uint32_t)draw(h, KEYS));
		break;
	case 4:
	case 5:
		put_many(h);
		break;
	case 6:
		(void)store_get(&h->store, 1 + draw(h, KEYS));
		break;
	case 7:
		erase(h);
		break;
	case 8:
		begin_many(h);
		erase(h);
		end_many(h);
		break;
	case 9:
		store_step(&h->store, (unsigned)draw(h, 20));
		store_advance(&h->store, (int64_t)draw(h, 2000000000));
		break;
	case 10:
		flush(h);
		break;
	default:
		if (draw(h, 4) == 0)
			reopen(h);
		break;
	}
}

/* --- judgement --------------------------------------------------------------------------------- */

/* What must be true of a key at a moment. */
struct verdict {
	bool must, must_not;
};

static struct verdict judge(const struct history *h, uint32_t key, uint64_t moment)
{
	uint64_t durable = 0, erased = 0, begun = 0, erase_begun = 0;

	for (size_t i = 0; i < h->fact_count; i++) {
		const struct fact *f = &h->facts[i];

		if (f->key != key || f->moment > moment)
			continue;
		if (f->kind == PUT_DURABLE)
			durable = f->when;
		else if (f->kind == ERASE_DURABLE)
			erased = f->of;
		else if (f->kind == PUT_BEGUN)
			begun = f->when;
		else
			erase_begun = f->when;
	}
	return (struct verdict){
		.must = durable > 0 && durable > erase_begun,
		.must_not = erased > 0 && begun < erased,
	};
}

static void check_store(struct history *h, struct store *s, uint64_t moment)
{
	for (uint32_t key = 1; key <= KEYS; key++) {
		struct verdict v = judge(h, key, moment);
		bool has = store_has(s, key);
		enum kvt_status status = store_get(s, key);

		if (status != KVT_OK && status != KVT_MISS && status != KVT_ECORRUPT)
			wrong(h, kvt_status_text(status), key, moment);
		if (v.must_not && (has || status == KVT_OK))
			wrong(h, "back after its erase was durable", key, moment);
		if (v.must && h->evictions == 0 && status != KVT_OK)
			wrong(h, "lost though its record was durable", key, moment);
		h->out->found += status == KVT_OK;
		h->out->lost += status != KVT_OK;
		h->out->corrupt += status == KVT_ECORRUPT;
		h->out->must += v.must && h->evictions == 0;
		h->out->must_not += v.must_not;
	}
}

/* The store goes on: new chunks over what is free now, then everything again. */
static void go_on(struct history *h, struct store *s)
{
	for (unsigned i = 0; i < 6; i++) {
		uint32_t key = 1 + (uint32_t)draw(h, KEYS);
		struct kvt_item item;

		set_item(&item, key);
		(void)store_put_item(s, key, &item, true);
	}
	for (uint32_t key = 1; key <= KEYS; key++)
		(void)store_get(s, key);
}

static void crash(struct history *h)
{
	enum kvt_disk_end end = draw(h, 4) == 0 ? KVT_DISK_KILL : KVT_DISK_POWER;
	uint64_t moment = draw(h, kvt_disk_moment(h->disk) + 1);
	struct kvt_io_layer layer;
	struct kvt_disk *disk;
	struct store *s = calloc(1, sizeof(*s));

	if (s == NULL || kvt_disk_after(h->disk, end, moment, draw(h, UINT64_MAX), &disk) != KVT_OK)
		abort();
	layer = kvt_disk_layer(disk);
	store_copy(s, &h->store);
	open_store(h, s, &layer);
	check_store(h, s, moment);
	go_on(h, s);
	store_close(s);
	open_store(h, s, &layer);
	for (uint32_t key = 1; key <= KEYS; key++)
		(void)store_get(s, key);
	store_close(s);
	free(s);
	kvt_disk_destroy(disk);
	h->out->crashes++;
}

void history_run(const struct history_options *options, struct history_result *out)
{
	struct history *h = calloc(1, sizeof(*h));
	struct kvt_disk_options disk = {.record = true, .seed = options->seed + 1};

	if (h == NULL)
		abort();
	h->time.now_ns = 1000000000;
	h->time.wall_ns = 1700000000000000000;
	disk.clock = &h->time;
	if (options->seed % 2 == 0)
		disk.latency_ns = 3000000; /* what is begun stays under way for a while */
	if (kvt_disk_create(&disk, &h->disk) != KVT_OK)
		abort();
	h->options = options;
	h->out = out;
	h->random = options->seed;
	h->layer = kvt_disk_layer(h->disk);
	store_init(&h->store);
	h->store.shared = &h->time;
	h->store.config.nvme_max_chunks = 40; /* the log wears out soon */
	h->store.config.nvme_capacity = options->capacity;
	h->store.config.protect_keys = options->keys;
	if (options->seed % 3 == 0)
		h->store.more_bytes = 250000; /* chunks of one to three pieces */
	open_store(h, &h->store, &h->layer);
	for (unsigned i = 0; i < options->steps; i++)
		work(h);
	h->evictions += store_stats(&h->store).evictions;
	store_step(&h->store, (unsigned)draw(h, 50));
	for (unsigned i = 0; i < options->crashes; i++)
		crash(h);
	store_finish(&h->store);
	kvt_disk_destroy(h->disk);
	free(h);
}
