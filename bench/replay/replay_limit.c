/*
 * replay_limit.c - a bound that no router can beat on these workers. Times are of the one machine,
 * in nanoseconds.
 */
#include "bench/replay/replay_limit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/mem.h"

/* The prefill of one request. */
struct task {
	double release, work, deadline;
	double left;
	uint32_t order; /* by release */
};

struct limit {
	const struct kvb_fleet_options *options;
	const struct kvb_jobs *jobs;
	struct task *tasks; /* sorted by release time, if no job follows another */
	size_t count;
	double speed;   /* speed of the one machine, in workers */
	double base_ns; /* time of an engine's shortest step */
	double cached;  /* tokens */
	double prompt;  /* tokens */
};

/* A set of ids with open addressing; 0 is a free slot. */
struct seen {
	uint64_t *ids;
	size_t mask;
};

/* Adds an id; returns true if it was new. */
static bool see(struct seen *seen, uint64_t id)
{
	size_t i = id & seen->mask;

	while (seen->ids[i] != 0 && seen->ids[i] != id)
		i = (i + 1) & seen->mask;
	if (seen->ids[i] == id)
		return false;
	seen->ids[i] = id;
	return true;
}

static struct seen seen_make(const struct kvb_jobs *jobs)
{
	struct seen seen = {0};
	size_t ids = 1;

	for (size_t j = 0; j < jobs->count; j++)
		ids += jobs->items[j].id_count;
	for (seen.mask = 1; seen.mask < ids * 2;)
		seen.mask = seen.mask * 2 + 1;
	seen.ids = kvb_alloc(seen.mask + 1, sizeof(seen.ids[0]));
	return seen;
}

/* Returns the nanoseconds that a prompt takes on the whole machine; each step of max_batched_tokens
 * costs base_ns. */
static double work_of(const struct limit *limit, const struct kvb_job *job, uint32_t hit)
{
	const struct kvb_profile *p = limit->options->profile;
	double tokens = (double)job->input - hit;
	double pairs = ((double)job->input * job->input - (double)hit * hit) / 2;
	double ns = pairs * p->attention_ns +
		    tokens * p->base_ms * 1e6 / limit->options->max_batched_tokens;

	if (p->prefill_tps > 0)
		ns += tokens * 1e9 / p->prefill_tps;
	return ns / limit->speed;
}

static void make_tasks(struct limit *limit, double late)
{
	struct seen seen = seen_make(limit->jobs);

	limit->tasks = kvb_alloc(limit->jobs->count, sizeof(limit->tasks[0]));
	for (size_t j = 0; j < limit->jobs->count; j++) {
		const struct kvb_job *job = &limit->jobs->items[j];
		struct task *task = &limit->tasks[limit->count];
		uint32_t held = 0;
		uint32_t hit;
		bool fresh = false;

		for (uint32_t i = 0; i < job->id_count; i++) {
			fresh = see(&seen, job->ids[i]) || fresh;
			held += fresh ? 0 : KVB_ID_TOKENS;
		}
		if (job->direct != KVB_ROUTED)
			continue; /* fills the cache and costs nothing */
		hit = kvb_job_reused(job, held, limit->options->block_size);
		limit->cached += hit;
		limit->prompt += job->input;
		task->release = job->follows ? 0 : (double)job->due_ns * late;
		task->work = task->left = work_of(limit, job, hit);
		task->deadline = task->release - limit->base_ns + kvb_slo_first_s(job->input) * 1e9;
		task->order = (uint32_t)limit->count++;
	}
	free(seen.ids);
}

/* A heap of tasks; the one with the least key is first. */
struct heap {
	struct task **items;
	size_t count;
	double (*key)(const struct task *task);
};

static double by_left(const struct task *task)
{
	return task->left;
}

static double by_deadline(const struct task *task)
{
	return task->deadline;
}

static bool before(const struct heap *heap, const struct task *a, const struct task *b)
{
	double x = heap->key(a);
	double y = heap->key(b);

	return x != y ? x < y : a->order < b->order;
}

static void heap_add(struct heap *heap, struct task *task)
{
	size_t i = heap->count++;

	for (; i > 0 && before(heap, task, heap->items[(i - 1) / 2]); i = (i - 1) / 2)
		heap->items[i] = heap->items[(i - 1) / 2];
	heap->items[i] = task;
}

/* Moves the first task to its new place after its key has grown, or removes it. */
static void heap_drop(struct heap *heap)
{
	struct task *last = heap->items[--heap->count];
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;

		if (child + 1 < heap->count &&
			before(heap, heap->items[child + 1], heap->items[child]))
			child++;
		if (child >= heap->count || !before(heap, heap->items[child], last))
			break;
		heap->items[i] = heap->items[child];
		i = child;
	}
	heap->items[i] = last;
}

/* Returns the mean time to first token in ns if the shortest remaining prefill always runs. */
static double shortest_first(struct limit *limit)
{
	struct heap heap = {kvb_alloc(limit->count + 1, sizeof(struct task *)), 0, by_left};
	double now = 0;
	double sum = 0;
	size_t next = 0;

	while (next < limit->count || heap.count > 0) {
		double until = next < limit->count ? limit->tasks[next].release : INFINITY;
		struct task *task = heap.count > 0 ? heap.items[0] : NULL;

		if (task == NULL || now + task->left > until) {
			if (task != NULL)
				task->left -= fmax(0, until - now); /* stays the least */
			now = fmax(now, until);
			heap_add(&heap, &limit->tasks[next++]);
			continue;
		}
		now += task->left;
		sum += now - task->release;
		heap_drop(&heap);
	}
	free(heap.items);
	return sum / (double)limit->count;
}

static int longest_first(const void *a, const void *b)
{
	const double *x = a;
	const double *y = b;

	return *x < *y ? 1 : *x > *y ? -1 : 0;
}

/* Returns how many of the tasks whose release and deadline lie within [begin, end] must fail at
 * least: the fewest that can be left out, the longest first, so that the work of the rest fits. */
static size_t must_fail(const struct limit *limit, double begin, double end)
{
	double *works = kvb_alloc(limit->count, sizeof(works[0]));
	double over = begin - end;
	size_t count = 0;
	size_t failed = 0;

	for (size_t i = 0; i < limit->count; i++)
		if (limit->tasks[i].release >= begin && limit->tasks[i].deadline <= end) {
			works[count++] = limit->tasks[i].work;
			over += limit->tasks[i].work;
		}
	qsort(works, count, sizeof(works[0]), longest_first);
	for (; failed < count && over > 1; failed++)
		over -= works[failed];
	free(works);
	return failed;
}

/*
 * Tasks that any schedule must finish late. The earliest deadline goes first, which meets all
 * deadlines if anything does. When one is missed, the span since the machine last had nothing so
 * urgent to do holds too much work; its losses are counted and the search goes on behind it.
 */
static size_t late_at_least(const struct limit *limit)
{
	struct heap heap = {kvb_alloc(limit->count + 1, sizeof(struct task *)), 0, by_deadline};
	double begin = 0; /* begin of the span that is examined */
	double now = 0;
	size_t late = 0;
	size_t next = 0;

	for (size_t i = 0; i < limit->count; i++)
		limit->tasks[i].left = limit->tasks[i].work;
	while (next < limit->count || heap.count > 0) {
		double until = next < limit->count ? limit->tasks[next].release : INFINITY;
		struct task *task = heap.count > 0 ? heap.items[0] : NULL;

		if (task == NULL || now + task->left > until) {
			if (task != NULL)
				task->left -= fmax(0, until - now);
			else
				begin = until;
			now = fmax(now, until);
			heap_add(&heap, &limit->tasks[next++]);
			continue;
		}
		now += task->left;
		heap_drop(&heap);
		if (now <= task->deadline)
			continue;
		late += must_fail(limit, begin, task->deadline);
		heap.count = 0;
		while (next < limit->count && limit->tasks[next].release < task->deadline)
			next++;
		begin = now = fmax(begin, task->deadline);
	}
	free(heap.items);
	return late;
}

/* Returns how many requests are late even alone on the machine, and the mean time that each takes
 * alone. */
static size_t late_alone(const struct limit *limit, double *mean)
{
	size_t late = 0;

	*mean = 0;
	for (size_t i = 0; i < limit->count; i++) {
		const struct task *task = &limit->tasks[i];

		late += task->release + task->work > task->deadline;
		*mean += task->work / (double)limit->count;
	}
	return late;
}

struct kvb_replay_result kvb_replay_limit(
	const struct kvb_fleet_options *options, const struct kvb_jobs *jobs, double late)
{
	double slower = options->odd.slower > 1 ? options->odd.slower : 1;
	struct limit limit = {.options = options,
		.jobs = jobs,
		.speed = options->workers - 1 + 1 / slower,
		.base_ns = options->profile->base_ms * 1e6};
	struct kvb_replay_result result = {.foretold = NAN,
		.ttft_p50 = NAN,
		.ttft_p90 = NAN,
		.ttft_p99 = NAN,
		.e2e_p99 = NAN,
		.last_s = NAN,
		.turn_goodput = NAN,
		.class_count = 1,
		.imbalance = 1};
	double each_s = (options->profile->base_ms + options->profile->decode_ms) / 1e3;
	double decoding_s = 0;
	bool follows = false;
	size_t lost = 0;

	make_tasks(&limit, late);
	result.requests = limit.count;
	for (size_t j = 0; j < jobs->count; j++) {
		if (jobs->items[j].direct != KVB_ROUTED)
			continue;
		decoding_s += each_s * (jobs->items[j].output - 1) / (double)limit.count;
		follows = follows || jobs->items[j].follows;
	}
	lost = late_alone(&limit, &result.ttft_mean);
	if (!follows) {
		size_t sure = late_at_least(&limit);

		lost = sure > lost ? sure : lost;
		for (size_t i = 0; i < limit.count; i++)
			limit.tasks[i].left = limit.tasks[i].work;
		result.ttft_mean = shortest_first(&limit);
	}
	/* The last piece of a prompt takes at least one step of its engine. */
	result.ttft_mean = result.ttft_mean / 1e9;
	result.tpot_mean = each_s;
	result.e2e_mean = result.ttft_mean + decoding_s;
	result.goodput = 1 - (double)lost / (double)limit.count;
	result.cached_share = limit.cached / limit.prompt;
	free(limit.tasks);
	return result;
}
