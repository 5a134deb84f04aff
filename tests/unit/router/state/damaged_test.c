/*
 * damaged_test.c - ten thousand damaged snapshots of a router's knowledge: refused, each of them; and as many
 * whose checksums were put right again, which strategies must survive, whatever their records say.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "support.h"
#include "tests/unit/suite.h"
#include "kvway/route.h"

#define SNAPSHOTS 10000
#define MODEL     "m"

static const union kvw_setting_value session_own[] = {
	{.integer = 3600000}, {.integer = 64}, {.ratio = 1.25}};

static struct kvw_strategy *make(const char *name)
{
	const struct kvw_strategy_ops *ops = kvw_strategy_find(name);
	struct kvw_strategy_options options = {.own = session_own,
		.tree_bytes = 1 << 20,
		.capacity_tokens = 1 << 20,
		.prefill_tokens_per_second = 1000,
		.omega = 0.07,
		.seed = 5};
	struct kvw_strategy *strategy = NULL;

	ck_assert_int_eq(ops->create(&options, &strategy), KVW_OK);
	return strategy;
}

static uint64_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return *state >> 33;
}

/* Asks a strategy for workers for some prompts of a session each. */
static void use(struct kvw_strategy *strategy, struct kvw_load *loads, uint64_t seed)
{
	struct kvw_candidate items[4];
	struct kvw_candidates set = {.items = items, .count = 4};
	struct kvw_chunk chunks[96];
	uint64_t random = seed;

	for (uint32_t i = 0; i < 4; i++) {
		kvw_load_init(&loads[i]);
		items[i] = (struct kvw_candidate){.id = i, .key = i + 1, .load = &loads[i],
			.capacity_tokens = 100000, .block_size = 16, .share = 1, .usable = true};
	}
	for (unsigned p = 0; p < 24; p++) {
		uint32_t count = 1 + (uint32_t)(next_random(&random) % 96), end = count;
		char name[2] = {(char)('a' + p), 0};
		struct kvw_route_request request = {.model = KVW_SLICE(MODEL), .session = {name, 1},
			.chunks = chunks, .chunk_count = count, .chain_ends = &end, .chain_count = 1,
			.tokens_per_unit = 1, .content_known = true, .teaches = true};
		struct kvw_decision decision;
		uint64_t hash = p / 4 + 1;

		for (uint32_t i = 0; i < count; i++) {
			hash = XXH3_64bits_withSeed(&i, sizeof(i), hash + (i > 40 ? p : 0));
			chunks[i] = (struct kvw_chunk){.hash = hash, .end = (i + 1) * 64};
		}
		ck_assert_int_eq(strategy->ops->pick(strategy, &request, &set,
					 (int64_t)(p + 1) * 1000000000, &decision),
			KVW_OK);
	}
}

/* What the strategies know after some requests. */
static struct bytes knowledge(struct kvw_load *loads)
{
	static struct kvw_state_writer writer;
	const char *const names[] = {"prefixaware", "session"};
	const struct kvw_keep_out out = {.put = kvw_state_write, .arg = &writer, .now_ns = INT64_C(30000000000)};
	struct bytes bytes;
	int fd = memory_file();

	ck_assert_int_eq(kvw_state_write_begin(&writer, fd, 1 << 24, 1, 1), KVW_OK);
	for (int i = 0; i < 2; i++) {
		struct kvw_strategy *strategy = make(names[i]);

		use(strategy, loads, 1);
		ck_assert_int_eq(strategy->ops->keep(strategy, &out), KVW_OK);
		strategy->ops->destroy(strategy);
	}
	ck_assert_int_eq(kvw_state_write_end(&writer), KVW_OK);
	ck_assert_uint_gt(writer.summary.sections[KVW_KEPT_NODE].records, 20);
	ck_assert_uint_gt(writer.summary.sections[KVW_KEPT_SESSION].records, 20);
	bytes = bytes_of(fd);
	close(fd);
	return bytes;
}

static struct kvw_state_reader reader;

static bool next(void *arg, enum kvw_keep_kind *kind, const uint8_t **record, size_t *len)
{
	(void)arg;
	return kvw_state_read(&reader, kind, record, len) == KVW_OK;
}

/* Recalls a snapshot into a new strategy and uses it. */
static void recall(const char *name, const uint8_t *data, size_t len, struct kvw_load *loads)
{
	struct kvw_strategy *strategy = make(name);
	uint32_t workers[KVW_MAX_WORKERS], generations[KVW_MAX_WORKERS] = {0};
	const struct kvw_keep_in in = {.next = next, .workers = workers, .generations = generations,
		.now_ns = INT64_C(40000000000), .passed_ns = 1000000000};
	struct kvw_strategy_stats stats;
	int fd = file_of(data, len);

	for (uint32_t i = 0; i < KVW_MAX_WORKERS; i++)
		workers[i] = i < 900 ? i : KVW_KEPT_GONE;
	if (kvw_state_read_begin(&reader, fd, 1 << 24) == KVW_OK)
		strategy->ops->recall(strategy, &in);
	close(fd);
	use(strategy, loads, 2);
	strategy->ops->stats(strategy, &stats);
	strategy->ops->destroy(strategy);
}

static void damage(uint8_t *data, size_t *len, uint64_t *random)
{
	unsigned changes = 1 + (unsigned)(next_random(random) % 8);

	for (unsigned i = 0; i < changes && *len > 1; i++) {
		size_t at = next_random(random) % *len, run = 1 + next_random(random) % 64;

		run = run < *len - at ? run : *len - at;
		switch (next_random(random) % 5) {
		case 0:
			data[at] ^= (uint8_t)(1u << next_random(random) % 8);
			break;
		case 1:
			data[at] = (uint8_t)next_random(random);
			break;
		case 2:
			memset(data + at, 0, run);
			break;
		case 3:
			memmove(data + at, data + next_random(random) % (*len - run + 1), run);
			break;
		default:
			if (next_random(random) % 8 == 0)
				*len = at + 1;
			break;
		}
	}
}

START_TEST(ten_thousand_are_refused)
{
	static struct kvw_load loads[4];
	struct bytes whole = knowledge(loads);
	uint8_t *copy = malloc(whole.len);
	uint64_t random = 17;
	unsigned same = 0;
	char why[KVW_STATE_WHY];

	ck_assert_int_eq(read_bytes(whole.data, whole.len, why), KVW_OK);
	for (unsigned i = 0; i < SNAPSHOTS; i++) {
		size_t len = whole.len;

		memcpy(copy, whole.data, whole.len);
		damage(copy, &len, &random);
		if (len == whole.len && memcmp(copy, whole.data, len) == 0) {
			same++;
			continue;
		}
		if (read_bytes(copy, len, why) != KVW_EPROTO || why[0] == '\0')
			ck_abort_msg("snapshot %u is taken for whole", i);
	}
	ck_assert_uint_lt(same, SNAPSHOTS / 4);
	free(copy);
	free(whole.data);
}
END_TEST

/* Puts right the checksums of all frames, and the last one's counts as they were. */
static void put_right(uint8_t *data, size_t len)
{
	uint64_t chain = XXH3_64bits(data, 56);

	memcpy(data + 56, &chain, 8);
	for (size_t at = 64; at + 24 <= len;) {
		uint32_t length;

		memcpy(&length, data + at + 4, 4);
		if (length > len - at - 24)
			return;
		chain = XXH3_64bits_withSeed(data + at + 24, length, XXH3_64bits_withSeed(data + at, 16, chain));
		memcpy(data + at + 16, &chain, 8);
		at += 24 + (size_t)length;
	}
}

START_TEST(ten_thousand_forged_ones_are_survived)
{
	static struct kvw_load loads[4];
	struct bytes whole = knowledge(loads);
	uint8_t *copy = malloc(whole.len);
	uint64_t random = 23;

	recall("prefixaware", whole.data, whole.len, loads);
	for (unsigned i = 0; i < SNAPSHOTS; i++) {
		size_t len = whole.len;

		memcpy(copy, whole.data, whole.len);
		damage(copy + 64, &(size_t){len - 64}, &random);
		put_right(copy, len);
		recall(i % 4 == 0 ? "session" : "prefixaware", copy, len, loads);
	}
	free(copy);
	free(whole.data);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("damaged");

	tcase_set_timeout(tcase, 200);
	tcase_add_test(tcase, ten_thousand_are_refused);
	tcase_add_test(tcase, ten_thousand_forged_ones_are_survived);
	return run_tcase("state damaged", tcase);
}
