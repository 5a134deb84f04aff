/*
 * gpu.c - the public functions: check their arguments once, for all backends.
 *
 * A wait is a loop of polls with naps between them that begin short: a copy of 4 MiB takes about 80
 * us on a fast bus, a nap of the same order loses nothing. The driver's own waiting has no time
 * limit, and no answer to a user may wait without one.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpu/gpu.h"

#define MIB              ((uint64_t)1 << 20)
#define GIB              ((uint64_t)1 << 30)
#define NAP_NS           20000  /* length of the first nap in a wait */
#define NAP_MOST_NS      200000
#define NAPS_BEFORE      20 /* polls without a nap */

struct kvt_gpu {
	struct kvt_gpu_config config; /* its texts are borrowed during create only */
	struct kvt_surroundings surroundings;
	struct kvt_gpu_paged paged;
	/* views are numbered from 1; an entry does not change once it is counted */
	struct kvt_gpu_paged views[KVT_GPU_VIEWS];
	_Atomic uint32_t view_count;
	pthread_mutex_t adding; /* a view */
	struct kvt_gpu_setup setup;
	const struct kvt_gpu_backend *backend;
	struct kvt_gpu_engine *engine;
	void *library; /* NULL: none was loaded */
	pid_t pid;     /* the creator's */
	/* gathers, scatters; relaxed: counts */
	_Atomic uint64_t refused, host_ops[2], host_bytes[2];
};

void kvt_gpu_config_init(struct kvt_gpu_config *config, size_t size)
{
	const struct kvt_gpu_config defaults = {
		.size = (uint32_t)size,
		.abi = KVT_ABI,
		.device = -1,
		.method = KVT_GPU_AUTO,
		.ops = 64,
		.streams = 2,
		.depth = 8,
		.multiprocessor_share = 0.125,
		.staging_bytes = 4 * MIB,
		.pin_bytes = GIB,
	};

	memset(config, 0, size);
	memcpy(config, &defaults, size < sizeof(defaults) ? size : sizeof(defaults));
}

static bool within(uint64_t value, uint64_t least, uint64_t most)
{
	return value >= least && value <= most;
}

static bool sensible(const struct kvt_gpu_config *c)
{
	return c->size >= sizeof(*c) && c->abi == KVT_ABI && c->device >= -1 &&
		c->method <= KVT_GPU_STAGING && within(c->ops, 1, 4096) &&
		within(c->streams, 1, 8) && within(c->depth, 1, 64) &&
		c->multiprocessor_share > 0 && c->multiprocessor_share <= 1 &&
		within(c->staging_bytes, 64 * 1024, GIB) && within(c->pin_bytes, MIB, 64 * GIB);
}

static void set_surroundings(struct kvt_gpu *g)
{
	struct kvt_config config;

	kvt_config_init(&config, sizeof(config));
	config.clock = g->config.clock;
	config.log = g->config.log;
	config.log_self = g->config.log_self;
	kvt_surroundings_init(&g->surroundings, &config);
}

static enum kvt_status start(struct kvt_gpu *g)
{
	enum kvt_status status = KVT_OK;

	g->setup = (struct kvt_gpu_setup){&g->config, &g->paged, &g->surroundings};
	g->backend = &kvt_gpu_host;
	if (g->config.device >= 0)
		status = kvt_gpu_load(
			g->config.library, &g->surroundings, &g->library, &g->backend);
	if (status == KVT_OK)
		status = g->backend->create(&g->setup, &g->engine);
	return status;
}

/* Frees memory that this file has allocated. */
static void give_back(struct kvt_gpu *g)
{
	kvt_gpu_paged_finish(&g->paged);
	for (uint32_t i = 0; i < atomic_load(&g->view_count); i++)
		kvt_gpu_paged_finish(&g->views[i]);
	pthread_mutex_destroy(&g->adding);
	free(g);
}

enum kvt_status kvt_gpu_create(const struct kvt_gpu_config *config,
	const struct kvt_gpu_layout *layout, struct kvt_gpu **out)
{
	struct kvt_gpu *g;
	enum kvt_status status;

	if (config == NULL || layout == NULL || out == NULL || !sensible(config))
		return KVT_EINVAL;
	g = calloc(1, sizeof(*g));
	if (g == NULL)
		return KVT_ENOMEM;
	g->config = *config;
	g->pid = getpid();
	if (pthread_mutex_init(&g->adding, NULL) != 0) {
		free(g);
		return KVT_ENOMEM;
	}
	set_surroundings(g);
	status = kvt_gpu_paged_init(&g->paged, layout, NULL);
	if (status == KVT_OK)
		status = start(g);
	g->config.library = g->config.driver = g->config.memo = NULL;
	if (status == KVT_OK) {
		*out = g;
		return KVT_OK;
	}
	if (g->library != NULL)
		dlclose(g->library);
	give_back(g);
	return status;
}

void kvt_gpu_destroy(struct kvt_gpu *g)
{
	if (g == NULL)
		return;
	/* in a forked child neither the device nor its memory can be used */
	if (g->pid == getpid()) {
		g->backend->destroy(g->engine);
		if (g->library != NULL)
			dlclose(g->library);
	}
	give_back(g);
}

static enum kvt_status usable(const struct kvt_gpu *g)
{
	if (g == NULL)
		return KVT_EINVAL;
	return g->pid == getpid() ? KVT_OK : KVT_EFORK;
}

uint64_t kvt_gpu_chunk_bytes(const struct kvt_gpu *g, size_t blocks)
{
	return kvt_gpu_paged_chunk(&g->paged, blocks);
}

enum kvt_status kvt_gpu_pin(struct kvt_gpu *g, void *base, uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), begin = (uint64_t)(uintptr_t)base, end;
	enum kvt_status status = usable(g);

	if (status == KVT_OK && (base == NULL || __builtin_add_overflow(begin, bytes, &end)))
		status = KVT_EINVAL;
	if (status != KVT_OK)
		return status;
	begin = (begin + page - 1) & ~(page - 1);
	end &= ~(page - 1);
	while (status == KVT_OK && begin < end) {
		uint64_t piece = g->config.pin_bytes & ~(page - 1);

		if (piece > end - begin)
			piece = end - begin;
		status = g->backend->pin(g->engine, (void *)(uintptr_t)begin, piece);
		begin += piece;
	}
	return status;
}

enum kvt_status kvt_gpu_view_add(struct kvt_gpu *g, const struct kvt_gpu_layout *layout,
	const struct kvt_gpu_parts *parts, uint32_t *view)
{
	enum kvt_status status = usable(g);
	uint32_t n;

	if (status != KVT_OK)
		return status;
	pthread_mutex_lock(&g->adding);
	n = atomic_load_explicit(&g->view_count, memory_order_relaxed);
	status = n == KVT_GPU_VIEWS ? KVT_FULL : kvt_gpu_paged_init(&g->views[n], layout, parts);
	if (status == KVT_OK) {
		status = g->backend->add_view(g->engine, &g->views[n]);
		if (status != KVT_OK)
			kvt_gpu_paged_finish(&g->views[n]);
	}
	if (status == KVT_OK) {
		*view = n + 1;
		atomic_store_explicit(&g->view_count, n + 1, memory_order_release);
	}
	pthread_mutex_unlock(&g->adding);
	return status;
}

const struct kvt_gpu_paged *kvt_gpu_view(struct kvt_gpu *g, uint32_t view)
{
	if (usable(g) != KVT_OK || view == 0 ||
		view > atomic_load_explicit(&g->view_count, memory_order_acquire))
		return NULL;
	return &g->views[view - 1];
}

enum kvt_status kvt_gpu_view_begin(struct kvt_gpu *g, uint32_t view, const struct kvt_gpu_job *job,
	bool scatter, const struct kvt_gpu_turn *turn, uint64_t *op)
{
	enum kvt_status status = usable(g);
	const struct kvt_gpu_paged *paged = NULL;
	struct kvt_gpu_move *move;
	uint64_t bytes;

	if (status == KVT_OK) {
		paged = view == 0 ? &g->paged : kvt_gpu_view(g, view);
		if (paged == NULL || job == NULL || op == NULL || job->size < sizeof(*job))
			status = KVT_EINVAL;
	}
	if (status == KVT_OK)
		status = kvt_gpu_move_make(paged, job, scatter, turn, &move);
	if (status != KVT_OK)
		return status;
	move->view = view;
	bytes = move->bytes;
	status = g->backend->begin(g->engine, move, op);
	if (status != KVT_OK) {
		free(move);
	} else if (g->backend == &kvt_gpu_host) {
		atomic_fetch_add_explicit(&g->host_ops[scatter], 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&g->host_bytes[scatter], bytes, memory_order_relaxed);
	}
	if (status == KVT_BUSY)
		atomic_fetch_add_explicit(&g->refused, 1, memory_order_relaxed);
	return status;
}

enum kvt_status kvt_gpu_gather_begin(struct kvt_gpu *g, const struct kvt_gpu_job *job, uint64_t *op)
{
	return kvt_gpu_view_begin(g, 0, job, false, NULL, op);
}

enum kvt_status kvt_gpu_scatter_begin(
	struct kvt_gpu *g, const struct kvt_gpu_job *job, uint64_t *op)
{
	return kvt_gpu_view_begin(g, 0, job, true, NULL, op);
}

enum kvt_status kvt_gpu_poll(struct kvt_gpu *g, uint64_t op)
{
	enum kvt_status status = usable(g);

	return status == KVT_OK ? g->backend->poll(g->engine, op) : status;
}

enum kvt_status kvt_gpu_wait(struct kvt_gpu *g, uint64_t op, uint64_t timeout_ns)
{
	enum kvt_status status = kvt_gpu_poll(g, op);
	long nap_ns = NAP_NS;
	int64_t begun;

	if (status != KVT_BUSY)
		return status;
	begun = kvt_now(&g->surroundings);
	for (unsigned polls = 0; status == KVT_BUSY; polls++) {
		uint64_t spent = (uint64_t)(kvt_now(&g->surroundings) - begun);

		if (spent >= timeout_ns)
			break;
		if (polls >= NAPS_BEFORE) {
			struct timespec nap = {0, nap_ns};

			nanosleep(&nap, NULL);
			nap_ns = nap_ns * 2 < NAP_MOST_NS ? nap_ns * 2 : NAP_MOST_NS;
		}
		status = kvt_gpu_poll(g, op);
	}
	return status;
}

enum kvt_status kvt_gpu_stats(struct kvt_gpu *g, struct kvt_gpu_stats *out)
{
	enum kvt_status status = usable(g);
	uint32_t size;

	if (status == KVT_OK && (out == NULL || out->size < sizeof(*out)))
		status = KVT_EINVAL;
	if (status != KVT_OK)
		return status;
	size = out->size;
	memset(out, 0, sizeof(*out));
	out->size = size;
	out->refused = atomic_load_explicit(&g->refused, memory_order_relaxed);
	out->gathers = atomic_load_explicit(&g->host_ops[0], memory_order_relaxed);
	out->scatters = atomic_load_explicit(&g->host_ops[1], memory_order_relaxed);
	out->gather_bytes = atomic_load_explicit(&g->host_bytes[0], memory_order_relaxed);
	out->scatter_bytes = atomic_load_explicit(&g->host_bytes[1], memory_order_relaxed);
	g->backend->stats(g->engine, out);
	return KVT_OK;
}

size_t kvt_gpu_describe(struct kvt_gpu *g, char *text, size_t bytes)
{
	if (usable(g) != KVT_OK) {
		if (bytes > 0)
			text[0] = '\0';
		return 0;
	}
	return g->backend->describe(g->engine, text, bytes);
}
