/*
 * generations.c - names of chunks below memory, by a shared tier's table of generations.
 *
 * name = key XOR SHA-256(domain | id of the table | generation of the fingerprint's slot, of the
 * tenant's slot | slots)
 *
 * The key is itself a hash. XOR can be undone, so that the names that tiers report become keys
 * again. The two bytes with the tenant's slot, and a fragment's mark, stay unchanged. L1 uses keys,
 * not names.
 *
 * An erase of a tenant, or of all, is one change of the table; the erase is done when the tier has
 * made the change. From then on this handle uses another generation for the names concerned, and so
 * does every other process once it has asked for changes: within l2.seen_time, or, if the process
 * was stopped for longer, before it reads anything. Chunks that were put before a change leave
 * memory and the queues of stores under the same lock under which names change, so that they are
 * never stored under a new name. Values under former names leave Redis by TTL and eviction.
 *
 * Only one question is under way at a time: if a newer answer overtook an older one, the older one
 * would bring back former names.
 *
 * While the shared tier cannot be reached, the handle goes on using memory and disk with the
 * generations that it knows, and learns of other processes' erases when the tier answers again.
 * When the tier answers but refuses the question, only memory is used. A failure, like an answer,
 * is valid for about l2.seen_time, so that a process that was stopped asks again. Until the table
 * was read for the first time no tier below memory is used.
 */
#include <stdlib.h>
#include <sys/random.h>

#include "core/barrier.h"
#include "core/generations.h"
#include "core/loads.h"
#include "core/lower.h"
#include "core/names.h"
#include "core/stores.h"

/* least time between questions; an answer is valid for at least twice that */
#define LEAST_NS 500000000
#define MOST_NS  10000000000
#define AGAIN_NS 200000000 /* after a failure */

/* limit of pages in one answer: a table has at most 258, and changes may come meanwhile */
#define PAGES_MOST 512
#define LINE_MOST  256 /* questions in line */

/* A question to the table, on its way or waiting to be sent. */
struct kvt_asking {
	struct kvt_job job; /* first */
	struct kvt_asking *next;
	struct kvt_barrier *barrier; /* the erase that waits for the answer; NULL: none */
	int64_t asked_ns;
	uint32_t own;   /* the slot whose generation is to be raised; KVT_SLOT_NONE: none */
	uint32_t pages; /* pages of the answer so far */
	struct kvt_tenant tenant;
	struct kvt_table_ask ask;
};

static void send_next(struct kvt *k);

static int64_t bounded(uint64_t ns)
{
	return ns > MOST_NS ? MOST_NS : ns < 2 * LEAST_NS ? 2 * LEAST_NS : (int64_t)ns;
}

static int64_t believed_ns(const struct kvt *k)
{
	return bounded(k->config.l2_seen_ns);
}

enum kvt_status kvt_generations_init(struct kvt *k)
{
	struct kvt_generations *g = &k->generations;

	for (size_t i = 0; i < k->lower_count; i++) {
		struct kvt_lower *b = &k->lower[i];

		/* a tier that could not be made counts as absent */
		if (b->ops->has_table && b->tier != NULL)
			g->home = b;
	}
	if (g->home == NULL)
		return KVT_OK;
	g->at = calloc(KVT_SLOTS, sizeof(*g->at));
	g->changed = calloc(1, sizeof(*g->changed));
	g->masks = calloc(KVT_NAME_MASKS, sizeof(*g->masks));
	return g->at != NULL && g->changed != NULL && g->masks != NULL ? KVT_OK : KVT_ENOMEM;
}

void kvt_generations_finish(struct kvt *k)
{
	struct kvt_generations *g = &k->generations;

	while (g->first != NULL) {
		struct kvt_asking *asking = g->first;

		g->first = asking->next;
		free(asking);
	}
	free(g->at);
	free(g->changed);
	free(g->masks);
}

/* --- changes of the table; `lock` is held
 * --------------------------------------------------------- */

/* Removes the chunks of these slots. below: from lower tiers, too. */
static size_t free_slots(struct kvt *k, const struct kvt_slot_set *slots, bool below)
{
	size_t most, count;

	kvt_loads_erase_slots(k, slots);
	kvt_stores_erase_slots(k, slots);
	most = kvt_l1_erase_slots(k->l1, slots);
	for (size_t i = 0; below && i < k->lower_count; i++) {
		struct kvt_tier *tier = k->lower[i].tier;

		if (tier == NULL || tier->ops->drop_slots == NULL)
			continue;
		count = tier->ops->drop_slots(tier, slots);
		most = count > most ? count : most;
	}
	return most;
}

/* Notes the changed slots in g->changed. Returns how many of them concern this handle, not counting
 * the slot `own`, which this handle raised itself. */
static size_t take_changes(struct kvt *k, const struct kvt_table_ask *ask, uint32_t own)
{
	struct kvt_generations *g = &k->generations;
	uint32_t version = kvt_version_slot(&k->config.fingerprint);
	size_t others = 0;

	for (uint32_t i = 0; i < ask->change_count; i++) {
		const struct kvt_slot_change *change = &ask->changes[i];

		if (change->number > g->number)
			g->number = change->number;
		if (change->slot >= KVT_SLOTS || change->number <= g->at[change->slot])
			continue;
		g->sum += (uint32_t)(change->number - g->at[change->slot]);
		g->at[change->slot] = change->number;
		if (change->slot < KVT_TENANT_SLOTS)
			kvt_slot_set_add(g->changed, change->slot);
		else if (change->slot == version)
			g->changed->all = true;
		else
			continue;
		others += change->slot != own;
	}
	return others;
}

/* Replaces the known table by the answer. */
static void adopt(struct kvt *k, const struct kvt_asking *asking)
{
	struct kvt_generations *g = &k->generations;
	const struct kvt_table_ask *ask = &asking->ask;
	bool other = memcmp(g->id, ask->now, sizeof(g->id)) != 0, was_known = g->known, whole;
	size_t others, count;

	memset(g->changed, 0, sizeof(*g->changed));
	pthread_mutex_lock(&g->lock);
	if (other) {
		memset(g->at, 0, KVT_SLOTS * sizeof(*g->at));
		memcpy(g->id, ask->now, sizeof(g->id));
		g->number = g->sum = 0;
		g->known = false;
	}
	others = take_changes(k, ask, asking->own);
	memset(g->masks, 0, KVT_NAME_MASKS * sizeof(*g->masks));
	g->known = g->known || !ask->more;
	whole = !ask->more && g->sum == ask->sum;
	if (!ask->more && !whole)
		g->number = KVT_NUMBER_LOST;
	pthread_mutex_unlock(&g->lock);
	g->changed->all |= other;
	count = kvt_slot_set_is_empty(g->changed) ? 0 : free_slots(k, g->changed, was_known);
	if (other && was_known) {
		kvt_count(&k->counters.tables_lost, 1);
		kvt_note(&k->surroundings, KVT_LOG_WARN,
			"%s: its table of generations was lost: all that was stored is cold",
			g->home->ops->name);
	} else if (was_known && others > 0) {
		kvt_count(&g->home->erased_elsewhere, others);
		kvt_note(&k->surroundings, KVT_LOG_INFO,
			"%s: another process erased: %zu changes, %zu chunks left here, too",
			g->home->ops->name, others, count);
	}
	if (!whole)
		return;
	g->next_ns = kvt_clock(k) + believed_ns(k) / 2;
	atomic_store(&g->fresh_until_ns, asking->asked_ns + believed_ns(k));
	atomic_store(&g->tried_until_ns, 0);
	g->told = false;
}

/* --- questions to the table; `lock` is held
 * ------------------------------------------------------- */

static void end_asking(struct kvt *k, struct kvt_asking *asking, bool made)
{
	struct kvt_barrier *b = asking->barrier;

	free(asking);
	send_next(k);
	if (b != NULL)
		kvt_barrier_raised(k, b, made);
	pthread_cond_broadcast(&k->changed);
}

static void failed(struct kvt *k, bool refused)
{
	struct kvt_generations *g = &k->generations;
	int64_t now_ns = kvt_clock(k), question_ns = AGAIN_NS + bounded(k->config.l2_deadline_ns);

	atomic_store(&g->refused, refused);
	atomic_store(&g->tried_until_ns, now_ns + believed_ns(k) + question_ns);
	if (!refused)
		return;
	kvt_count(&k->counters.tables_refused, 1);
	if (g->told || now_ns < atomic_load(&g->fresh_until_ns))
		return;
	g->told = true;
	kvt_note(&k->surroundings, KVT_LOG_WARN,
		"%s: refuses to say which tenants were erased: until it does only memory is used, and "
		"erases by others are not seen",
		g->home->ops->name);
}

static void answered(struct kvt *k, struct kvt_job *job)
{
	struct kvt_generations *g = &k->generations;
	struct kvt_asking *asking = (struct kvt_asking *)job;
	bool good = job->request.status == KVT_OK;

	if (good && ++asking->pages > PAGES_MOST) {
		job->request.status = KVT_ENOTSUP;
		good = false;
	}
	g->under_way = false;
	g->next_ns = kvt_clock(k) + AGAIN_NS;
	if (good)
		adopt(k, asking);
	else
		failed(k, job->request.status == KVT_ENOTSUP);
	/* asks for the next page before any other question */
	if (good && asking->ask.more && !k->closing) {
		asking->ask.raise = KVT_SLOT_NONE;
		asking->next = g->first;
		g->first = asking;
		send_next(k);
		return;
	}
	end_asking(k, asking, good);
}

static void send_next(struct kvt *k)
{
	struct kvt_generations *g = &k->generations;
	struct kvt_asking *asking = g->first;

	if (asking == NULL || g->under_way || k->closing)
		return;
	g->first = asking->next;
	g->under_way = true;
	pthread_mutex_lock(&g->lock);
	memcpy(asking->ask.id, g->id, sizeof(g->id));
	asking->ask.after = g->number;
	pthread_mutex_unlock(&g->lock);
	asking->asked_ns = kvt_clock(k);
	asking->job.request = (struct kvt_tier_request){.verb = KVT_TIER_TABLE, .table = &asking->ask};
	kvt_lower_submit(g->home, &asking->job, answered);
}

/* Puts a question behind those that wait. NULL: out of memory, or the tier has left too many
 * without an answer. */
static struct kvt_asking *line_up(struct kvt *k)
{
	struct kvt_asking **at = &k->generations.first;
	struct kvt_asking *asking = NULL;
	size_t count = 0;

	for (; *at != NULL; at = &(*at)->next)
		count++;
	if (count < LINE_MOST)
		asking = calloc(1, sizeof(*asking));
	else
		kvt_note(&k->surroundings, KVT_LOG_WARN,
			"%s: an erase is refused: %d wait for its answer",
			k->generations.home->ops->name, LINE_MOST);
	if (asking == NULL || getrandom(asking->ask.fresh, KVT_TABLE_ID_BYTES, 0) != KVT_TABLE_ID_BYTES) {
		free(asking);
		return NULL;
	}
	asking->ask.raise = asking->own = KVT_SLOT_NONE;
	*at = asking;
	return asking;
}

bool kvt_generations_raise(
	struct kvt *k, struct kvt_barrier *b, uint32_t slot, const struct kvt_tenant *tenant)
{
	struct kvt_asking *asking = k->generations.home->tier != NULL ? line_up(k) : NULL;

	if (asking == NULL)
		return false;
	asking->barrier = b;
	asking->own = asking->ask.raise = slot;
	if (tenant != NULL) {
		asking->tenant = *tenant;
		asking->ask.tenant = &asking->tenant;
	}
	send_next(k);
	return true;
}

/* Asks for changes unless a question is already under way. */
bool kvt_generations_ask(struct kvt *k)
{
	struct kvt_generations *g = &k->generations;

	if (g->under_way || g->first != NULL || k->closing || g->home->tier == NULL)
		return false;
	if (line_up(k) == NULL)
		return false;
	send_next(k);
	return true;
}

size_t kvt_generations_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns)
{
	struct kvt_generations *g = &k->generations;

	if (g->home == NULL || g->home->tier == NULL || g->under_way)
		return 0;
	if (now_ns >= g->next_ns)
		return kvt_generations_ask(k);
	if (g->next_ns < *next_ns)
		*next_ns = g->next_ns;
	return 0;
}

void kvt_table_numbers(struct kvt *k, const uint32_t *slots, size_t n, uint64_t *numbers)
{
	struct kvt_generations *g = &k->generations;

	pthread_mutex_lock(&g->lock);
	for (size_t i = 0; i < n; i++)
		numbers[i] = g->at != NULL ? g->at[slots[i]] : 0;
	pthread_mutex_unlock(&g->lock);
}

size_t kvt_slot_free(struct kvt *k, uint32_t slot)
{
	struct kvt_slot_set *slots = calloc(1, sizeof(*slots));
	size_t count;

	if (slots == NULL)
		return 0; /* other chunks evict the old ones when they need room */
	kvt_slot_set_add(slots, slot);
	pthread_mutex_lock(&k->lock);
	count = free_slots(k, slots, true);
	pthread_mutex_unlock(&k->lock);
	free(slots);
	return count;
}

enum kvt_status kvt_table_read(struct kvt *k, struct kvt_table_ask *ask)
{
	struct kvt_generations *g = &k->generations;
	enum kvt_status status = KVT_OK;
	bool same;

	if (g->home == NULL)
		return KVT_MISS;
	if (!kvt_names_show(k, NULL))
		return KVT_BUSY;
	pthread_mutex_lock(&g->lock);
	same = memcmp(g->id, ask->id, sizeof(g->id)) == 0;
	memcpy(ask->now, g->id, sizeof(g->id));
	/* The shared tier has lost changes that a client knows, before this process began. */
	if (g->known && same && ask->after > g->number)
		g->number = KVT_NUMBER_LOST;
	if (g->known && g->number != KVT_NUMBER_LOST)
		kvt_slots_collect(g->at, same ? ask->after : 0, ask);
	else
		status = KVT_BUSY;
	pthread_mutex_unlock(&g->lock);
	return status;
}
