/*
 * model_test.c - the index against a trivial map, through random histories.
 *
 * The map is an array over a small universe of keys. It does not predict which entry a policy
 * chooses; it checks that each one that leaves was allowed to leave then, for the reason for which
 * the call makes entries leave, and that everything else is still there.
 *
 * Each history is made from its seed alone; a failure prints the seed.
 */
#include "support.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#undef EXPECT
#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg("seed %llu, line %d: %s", (unsigned long long)seed_now,       \
				__LINE__, #condition);                                             \
	} while (0)

static uint64_t seed_now;

#define UNIVERSE 48
#define LIVES    512 /* entries that can be in the index or held at once */
#define STEPS    3000

enum phase { ABSENT, FILLING, LIVE, GOING };

/* One life of a key: from insert to gone. */
struct life {
	enum phase phase;
	uint32_t key;
	uint32_t entry;
	uint32_t holds;
	bool pinned;
	bool filled; /* was published */
	struct kvt_entry_info info;
};

/* What the call under way may evict. What it removes for another reason is GOING before it. */
struct may {
	bool evict;                            /* unheld, unpinned leaves */
	uint32_t spared;                       /* key that must not be evicted, UINT32_MAX: none */
	const struct kvt_entry_info *room_for; /* NULL: evicts anyway */
};

struct model {
	struct kvt_index *index;
	struct kvt_surroundings surroundings;
	struct kvt_index_options options;
	int64_t wall_ns;
	uint64_t random;
	uint32_t parents[UNIVERSE]; /* UINT32_MAX: none; below the key's number */
	struct life lives[LIVES];
	struct may may;
	uint64_t evictions, expired, erased, dropped;
	uint64_t evicted_in_call;
};

static int64_t wall(void *self)
{
	return ((struct model *)self)->wall_ns;
}

static void quiet(void *self, uint32_t level, const char *line)
{
	(void)self, (void)level, (void)line;
}

static uint32_t below(struct model *m, uint32_t limit)
{
	return (uint32_t)(test_random(&m->random) % limit);
}

/* The life that holds the key's name now: FILLING or LIVE. */
static struct life *named(struct model *m, uint32_t key)
{
	for (size_t i = 0; i < LIVES; i++)
		if (m->lives[i].key == key &&
			(m->lives[i].phase == LIVE || m->lives[i].phase == FILLING))
			return &m->lives[i];
	return NULL;
}

static struct life *of_entry(struct model *m, uint32_t entry)
{
	for (size_t i = 0; i < LIVES; i++)
		if (m->lives[i].phase != ABSENT && m->lives[i].entry == entry)
			return &m->lives[i];
	return NULL;
}

static bool is_over(const struct model *m, const struct life *life)
{
	return life->info.expires_wall_ns <= m->wall_ns;
}

static bool shows(struct model *m, uint32_t key)
{
	struct life *life = named(m, key);

	return life != NULL && life->phase == LIVE && !is_over(m, life);
}

static bool has_child(struct model *m, uint32_t key)
{
	for (uint32_t i = key + 1; i < UNIVERSE; i++)
		if (m->parents[i] == key && named(m, i) != NULL)
			return true;
	return false;
}

static uint64_t used_by(struct model *m, const struct kvt_tenant *tenant)
{
	uint64_t used = 0;

	for (size_t i = 0; i < LIVES; i++)
		if (m->lives[i].phase != ABSENT &&
			(tenant == NULL ||
				memcmp(&m->lives[i].info.tenant, tenant, sizeof(*tenant)) == 0))
			used += m->lives[i].info.charge;
	return used;
}

static bool may_go(struct model *m, const struct life *life)
{
	return m->may.evict && life->phase == LIVE && life->holds == 0 && !life->pinned &&
	       life->key != m->may.spared && !has_child(m, life->key);
}

/* Of this tenant's, or (NULL) of all: may any entry go now? */
static bool any_may_go(struct model *m, const struct kvt_tenant *tenant)
{
	for (size_t i = 0; i < LIVES; i++)
		if (may_go(m, &m->lives[i]) &&
			(tenant == NULL ||
				memcmp(&m->lives[i].info.tenant, tenant, sizeof(*tenant)) == 0))
			return true;
	return false;
}

/* Charges of all, of this tenant's or (NULL) of any, that may go one after another, and their number:
 * a child has a greater number than its parent. */
static uint64_t all_that_may_go(struct model *m, const struct kvt_tenant *tenant, uint32_t *count)
{
	const struct life *by_key[UNIVERSE] = {NULL};
	bool keeps[UNIVERSE] = {false}; /* a child stays */
	uint64_t charge = 0;

	*count = 0;
	for (size_t i = 0; i < LIVES; i++)
		if (m->lives[i].phase == LIVE || m->lives[i].phase == FILLING)
			by_key[m->lives[i].key] = &m->lives[i];
	for (uint32_t key = UNIVERSE; key-- > 0;) {
		const struct life *life = by_key[key];

		if (life == NULL)
			continue;
		if (!keeps[key] && life->phase == LIVE && life->holds == 0 && !life->pinned &&
			key != m->may.spared &&
			(tenant == NULL ||
				memcmp(&life->info.tenant, tenant, sizeof(*tenant)) == 0)) {
			charge += life->info.charge;
			++*count;
		} else if (m->parents[key] != UINT32_MAX) {
			keeps[m->parents[key]] = true;
		}
	}
	return charge;
}

static bool lacks_room_of_tenant(struct model *m)
{
	const struct kvt_entry_info *info = m->may.room_for;

	return m->options.tenant_limit > 0 &&
	       used_by(m, &info->tenant) + info->charge > m->options.tenant_limit;
}

static bool lacks_room(struct model *m)
{
	const struct kvt_entry_info *info = m->may.room_for;
	uint32_t taken = 0;

	if (info == NULL)
		return true;
	for (size_t i = 0; i < LIVES; i++)
		taken += m->lives[i].phase != ABSENT;
	return lacks_room_of_tenant(m) || taken >= m->options.max_entries ||
	       used_by(m, NULL) + info->charge > m->options.capacity;
}

static void on_gone(
	void *self, uint32_t entry, const struct kvt_key *key, const struct kvt_entry_info *info)
{
	struct model *m = self;
	struct life *life = of_entry(m, entry);
	struct kvt_key expected;

	EXPECT(life != NULL);
	expected = key_of(life->key);
	EXPECT(memcmp(key, &expected, sizeof(expected)) == 0);
	EXPECT(same_info(info, &life->info));
	EXPECT(life->holds == 0);
	if (life->phase != GOING) {
		EXPECT(may_go(m, life) && lacks_room(m));
		m->evictions++;
		m->evicted_in_call++;
	}
	life->phase = ABSENT;
}

/* Would there be no room even without all that may go? */
static bool cannot_fit(struct model *m)
{
	const struct kvt_entry_info *info = m->may.room_for;
	uint32_t count, taken = 0;
	uint64_t charge;

	if (m->options.tenant_limit > 0) {
		charge = all_that_may_go(m, &info->tenant, &count);
		if (used_by(m, &info->tenant) - charge + info->charge > m->options.tenant_limit)
			return true;
	}
	for (size_t i = 0; i < LIVES; i++)
		taken += m->lives[i].phase != ABSENT;
	charge = all_that_may_go(m, NULL, &count);
	return taken - count >= m->options.max_entries ||
	       used_by(m, NULL) - charge + info->charge > m->options.capacity;
}

/* A name is lost by erase, expiry, drop, discard; the entry goes with its last hold. */
static void forget(struct life *life)
{
	EXPECT(life->phase == LIVE || life->phase == FILLING);
	life->pinned = false;
	life->phase = GOING;
}

/* --- steps --- */

static void step_insert(struct model *m)
{
	const uint32_t number = below(m, UNIVERSE), parent_number = m->parents[number];
	const struct kvt_key key = key_of(number), parent = key_of(parent_number);
	struct life *before = named(m, number), *life = NULL;
	struct kvt_entry_info info = info_of(1 + below(m, 8));
	bool was_over = before != NULL && before->phase == LIVE && is_over(m, before);
	enum kvt_status status;
	uint32_t entry;

	info.charge += below(m, 3);
	info.tenant = tenant_of(below(m, 3));
	info.place[0] = m->random;
	info.tokens = number;
	info.cost_ns = 1u << below(m, 20);
	if (below(m, 3) == 0) {
		info.ttl_ns = below(m, 2) * 20 * SECOND;
		info.expires_wall_ns = m->wall_ns + 20 * SECOND;
	}
	m->may = (struct may){.evict = true, .spared = parent_number, .room_for = &info};
	if (was_over) {
		forget(before);
		m->expired++;
	}
	m->evicted_in_call = 0;
	status = kvt_index_insert(
		m->index, &key, parent_number == UINT32_MAX ? NULL : &parent, &info, &entry);
	if (before != NULL && !was_over) {
		EXPECT(status == KVT_EXISTS && entry == before->entry);
		return;
	}
	if (status == KVT_FULL) {
		EXPECT(cannot_fit(m));
		EXPECT(m->evicted_in_call == 0);
		return;
	}
	EXPECT(status == KVT_OK);
	EXPECT(of_entry(m, entry) == NULL && entry < m->options.max_entries);
	for (size_t i = 0; life == NULL; i++)
		if (m->lives[i].phase == ABSENT)
			life = &m->lives[i];
	*life = (struct life){
		.phase = FILLING, .key = number, .entry = entry, .holds = 1, .info = info};
	EXPECT(used_by(m, NULL) <= m->options.capacity);
	if (m->options.tenant_limit > 0)
		EXPECT(used_by(m, &info.tenant) <= m->options.tenant_limit);
}

static struct life *some(struct model *m, enum phase phase, bool held)
{
	const uint32_t from = below(m, LIVES);

	for (uint32_t i = 0; i < LIVES; i++) {
		struct life *life = &m->lives[(from + i) % LIVES];

		if (life->phase == phase && (!held || life->holds > 0))
			return life;
	}
	return NULL;
}

static void step_publish(struct model *m)
{
	struct life *life = some(m, FILLING, true);

	if (life == NULL)
		return;
	if (below(m, 4) == 0) {
		forget(life);
		life->holds = 0;
		kvt_index_discard(m->index, life->entry);
		EXPECT(life->phase == ABSENT);
		return;
	}
	EXPECT(kvt_index_publish(m->index, life->entry) == KVT_OK);
	life->phase = LIVE;
	life->filled = true;
	if (below(m, 4) != 0) {
		life->holds = 0;
		kvt_index_release(m->index, life->entry);
	}
}

static uint32_t line_of(struct model *m, uint32_t *numbers, struct kvt_key *keys)
{
	uint32_t number = below(m, UNIVERSE), n = 0;
	uint32_t up[UNIVERSE];

	for (; number != UINT32_MAX; number = m->parents[number])
		up[n++] = number;
	for (uint32_t i = 0; i < n; i++) {
		numbers[i] = up[n - 1 - i];
		keys[i] = key_of(numbers[i]);
	}
	return n;
}

static void step_look(struct model *m)
{
	uint32_t numbers[UNIVERSE], entries[UNIVERSE];
	struct kvt_key keys[UNIVERSE];
	const uint32_t n = line_of(m, numbers, keys);
	const bool use = below(m, 2) == 0;
	uint32_t expected = 0;

	while (expected < n && shows(m, numbers[expected]))
		expected++;
	EXPECT(kvt_index_match(m->index, keys, n) == expected);
	EXPECT(kvt_index_hold_chain(m->index, keys, n, use, entries) == expected);
	for (uint32_t i = 0; i < expected; i++) {
		struct life *life = named(m, numbers[i]);

		EXPECT(life->entry == entries[i]);
		EXPECT(memcmp(kvt_index_key(m->index, entries[i]), &keys[i], sizeof(*keys)) == 0);
		life->holds++;
		if (use && life->info.ttl_ns != 0)
			life->info.expires_wall_ns = m->wall_ns + (int64_t)life->info.ttl_ns;
	}
}

static void step_release(struct model *m)
{
	struct life *life = some(m, below(m, 3) == 0 ? GOING : LIVE, true);
	bool last;

	if (life == NULL)
		return;
	if (life->phase == GOING && below(m, 2) == 0) {
		/* its filler hears of it only now, if it had one */
		EXPECT(kvt_index_publish(m->index, life->entry) == KVT_MISS);
	}
	life->holds--;
	last = life->holds == 0 && life->phase == GOING;
	if (!life->filled && below(m, 2) == 0)
		kvt_index_discard(m->index, life->entry);
	else
		kvt_index_release(m->index, life->entry);
	EXPECT(!last || life->phase == ABSENT);
}

static void step_erase(struct model *m)
{
	const uint32_t number = below(m, UNIVERSE);
	const struct kvt_key keys[2] = {key_of(number), key_of(UNIVERSE + 1)};
	struct life *life = named(m, number);

	if (life != NULL) {
		forget(life);
		m->erased++;
	}
	if (life != NULL && life->holds > 0 && below(m, 2) == 0) {
		m->erased--;
		m->dropped++;
		kvt_index_drop(m->index, life->entry);
		return;
	}
	EXPECT(kvt_index_erase(m->index, keys, 2) == (life != NULL));
	EXPECT(life == NULL || life->holds > 0 || life->phase == ABSENT);
}

static void step_sweep(struct model *m)
{
	const uint32_t kind = below(m, 16);
	const struct kvt_tenant tenant = tenant_of(below(m, 3));
	size_t expected = 0, done;

	for (size_t i = 0; i < LIVES; i++) {
		struct life *life = &m->lives[i];

		if (life->phase != LIVE && life->phase != FILLING)
			continue;
		if (kind == 0 ||
			(kind == 1 && memcmp(&life->info.tenant, &tenant, sizeof(tenant)) == 0) ||
			(kind > 1 && life->phase == LIVE && is_over(m, life))) {
			forget(life);
			expected++;
		}
	}
	if (kind == 0)
		done = kvt_index_erase_all(m->index);
	else if (kind == 1)
		done = kvt_index_erase_tenant(m->index, &tenant);
	else
		done = kvt_index_expire(m->index, LIVES);
	EXPECT(done == expected);
	*(kind > 1 ? &m->expired : &m->erased) += done;
}

static void step_pin(struct model *m)
{
	const uint32_t number = below(m, UNIVERSE);
	const struct kvt_key key = key_of(number);
	const bool pin = below(m, 3) == 0;
	const bool there = shows(m, number);

	EXPECT(kvt_index_pin(m->index, &key, 1, pin) == there);
	if (there)
		named(m, number)->pinned = pin;
}

static void step_evict(struct model *m)
{
	bool possible;

	m->may = (struct may){.evict = true, .spared = UINT32_MAX};
	possible = any_may_go(m, NULL);
	m->evicted_in_call = 0;
	EXPECT(kvt_index_evict(m->index) == possible);
	EXPECT(m->evicted_in_call == (possible ? 1 : 0));
}

/* --- after each step --- */

static void check(struct model *m)
{
	struct kvt_index_stats stats, own = {0};

	for (size_t i = 0; i < LIVES; i++) {
		const struct life *life = &m->lives[i];

		if (life->phase == ABSENT)
			continue;
		EXPECT(life->phase != GOING || life->holds > 0);
		own.used += life->info.charge;
		own.payload += life->info.bytes;
		own.entries += life->phase == LIVE;
		own.held += life->holds > 0;
		own.pinned += life->pinned;
		if (life->phase != GOING && m->parents[life->key] != UINT32_MAX)
			own.orphans += named(m, m->parents[life->key]) == NULL;
	}
	kvt_index_stats(m->index, &stats);
	EXPECT(stats.used == own.used && stats.payload == own.payload);
	EXPECT(stats.entries == own.entries && stats.held == own.held);
	EXPECT(stats.pinned == own.pinned && stats.orphans == own.orphans);
	EXPECT(stats.evictions == m->evictions && stats.expired == m->expired);
	EXPECT(stats.erased == m->erased && stats.dropped == m->dropped);
	for (uint32_t i = 0; i < UNIVERSE; i++) {
		const struct kvt_key key = key_of(i);

		EXPECT(kvt_index_match(m->index, &key, 1) == shows(m, i));
	}
}

static void history(uint64_t seed, const char *policy)
{
	static struct model m;

	memset(&m, 0, sizeof(m));
	m.random = seed;
	m.wall_ns = 1000 * SECOND;
	m.surroundings = (struct kvt_surroundings){
		.clock = {.now_ns = wall, .wall_ns = wall, .self = &m}, .log = quiet};
	m.options = (struct kvt_index_options){
		.max_entries = 4 + below(&m, UNIVERSE),
		.capacity = 20 + below(&m, 250),
		.tenant_limit = below(&m, 2) == 0 ? 0 : 15 + below(&m, 60),
		.policy = policy,
		.max_ghost_bytes = 4096,
		.gone = on_gone,
		.self = &m,
	};
	for (uint32_t i = 0; i < UNIVERSE; i++)
		m.parents[i] = i == 0 || below(&m, 6) == 0 ? UINT32_MAX
			       : below(&m, 3) == 0         ? below(&m, i)
							   : i - 1;
	EXPECT(kvt_index_create(&m.options, &m.surroundings, &m.index) == KVT_OK);
	for (int step = 0; step < STEPS; step++) {
		static void (*const steps[])(struct model *) = {step_insert, step_insert,
			step_insert, step_publish, step_publish, step_publish, step_look,
			step_release, step_release, step_release, step_release, step_release,
			step_erase, step_pin, step_evict};

		m.may = (struct may){.spared = UINT32_MAX};
		if (below(&m, 40) == 0)
			step_sweep(&m);
		else
			steps[below(&m, sizeof(steps) / sizeof(steps[0]))](&m);
		m.wall_ns += below(&m, 2) * SECOND;
		check(&m);
	}
	m.may = (struct may){.spared = UINT32_MAX};
	for (size_t i = 0; i < LIVES; i++)
		while (m.lives[i].phase != ABSENT && m.lives[i].holds > 0) {
			struct life *life = &m.lives[i];

			life->holds--;
			if (life->phase == FILLING) {
				forget(life);
				kvt_index_discard(m.index, life->entry);
			} else {
				kvt_index_release(m.index, life->entry);
			}
		}
	for (size_t i = 0; i < LIVES; i++)
		if (m.lives[i].phase == LIVE)
			forget(&m.lives[i]);
	kvt_index_destroy(m.index);
	for (size_t i = 0; i < LIVES; i++)
		EXPECT(m.lives[i].phase == ABSENT);
}

START_TEST(histories)
{
	const char *policy = kvt_policy_names()[_i];
	const char *rounds = getenv("INDEX_HISTORIES");
	const uint64_t seeds = rounds == NULL ? kvt_test_steps(40) : strtoull(rounds, NULL, 10);

	for (uint64_t seed = 1; seed <= seeds; seed++) {
		seed_now = seed;
		history(seed, policy);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("model");
	int policies = 0;

	while (kvt_policy_names()[policies] != NULL)
		policies++;
	tcase_set_timeout(tcase, 0);
	tcase_add_loop_test(tcase, histories, 0, policies);
	return run_tcase("cache-index-model", tcase);
}
