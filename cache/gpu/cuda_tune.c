/*
 * cuda_tune.c - finds the fastest method on this device, for each size and direction.
 *
 * The fastest method depends on the bus, on the length of the contiguous runs, on their number and
 * on the driver: published crossovers between a kernel and the copy engine differ by an order of
 * magnitude between devices. So a calibration measures each method once: operations of 256 KiB, 4
 * MiB and 16 MiB with the engine's length of runs and size of blocks, on memory of the device and
 * of this machine that is taken for the calibration and given back. The engine's own blocks are
 * neither read nor written. The memo and the log have the result.
 *
 * Loads and stores go on at the same time, and a method that fills the bus one way may be far from
 * it both ways: on an H200 a kernel across the bus moves 0.92 of what one long copy does, and 0.60
 * of two at once; staging 0.94 and 0.92. A method's score is the sum of the rate alone and half of
 * the rate both ways.
 *
 * Operations of a view with shorter runs, such as a fragment's tokens, go by staging where long
 * runs go by copies: on an H200 copies of 1 KiB move a hundredth of what staging does.
 *
 * A rule chooses where no measurement is possible (no memory left on the device): the copy engine
 * for long runs, staging for short ones.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda_backend.h"
#include "gpu/memo.h"

#define KIB        ((uint64_t)1024)
#define MIB        (KIB * 1024)
#define LONG_RUN   (64 * KIB)
#define MOST_WIDE  (64 * MIB)              /* most memory of the device that measurements use */
#define PATIENCE   ((int64_t)500000000)    /* ns, for one trial */
#define TRIAL      ((uint64_t)32 * MIB)    /* bytes of a trial */
#define FEWEST_OPS 4u
#define MOST_OPS   16u
#define WARM_OPS   2u
#define HOPELESS   4       /* a method that is so many times slower than another, ... */
/* ... and whose first operations take this long (ns), is not measured further */
#define LONG       5000000

static const uint64_t class_bytes[KVT_CUDA_CLASSES] = {256 * KIB, 4 * MIB, 16 * MIB};

/* Blocks of one layer that are made for the measurement, as many as the size of the class needs. */
struct rig {
	struct kvt_gpu_paged paged;
	struct kvt_cuda_target target;
	uint64_t device; /* in the device's memory: the blocks, then the address of the layer */
	void *host;      /* two chunks: one for gathers, one for scatters */
	struct kvt_gpu_job jobs[2];
	struct kvt_segment segments[2];
	int64_t *ids;
	bool known;     /* the memory of the chunks is in the engine's list of pieces */
	uint32_t count; /* operations at once */
	struct kvt_cuda_op ops[MOST_OPS];
};

enum ways { GATHERS, SCATTERS, BOTH };

static void choose_by_rule(struct kvt_gpu_engine *e)
{
	uint32_t rule = KVT_GPU_STAGING;

	if (e->setup.paged->shape.run.by >= LONG_RUN || !kvt_cuda_can(e, rule, NULL))
		rule = KVT_GPU_COPIES;
	for (uint32_t class = 0; class < KVT_CUDA_CLASSES; class++)
		e->choice[0][class] = e->choice[1][class] = rule;
}

/* Makes blocks with as many runs as the LLM engine's, and a gap of the same length after each run.
 * If a block is a single run, every other block is used, since neighbours would be copied as
 * one. */
static enum kvt_status make_blocks(struct kvt_gpu_engine *e, struct rig *rig, uint64_t bytes)
{
	const struct kvt_gpu_shape *shape = &e->setup.paged->shape;
	uint64_t block = shape->block.by, run = shape->run.by;
	uint64_t n = bytes / block > 0 ? bytes / block : 1, wide = 2 * block * n;
	void *layer;
	struct kvt_gpu_layout layout = {
		.size = sizeof(layout),
		.element_bytes = 1,
		.axis_count = 2,
		.layer_count = 1,
		.axes = {{block / run, (int64_t)(2 * run)}, {run, 1}},
		.block_count = n,
		.block_stride = (int64_t)(2 * block),
		.layers = &layer,
	};
	enum kvt_status status;

	if (wide > MOST_WIDE ||
		!kvt_cuda_fine(e, e->driver.memory_alloc(&rig->device, wide + sizeof(rig->device)),
			"memory of the device for a calibration"))
		return KVT_FULL;
	layer = (void *)(uintptr_t)rig->device;
	status = kvt_gpu_paged_init(&rig->paged, &layout, NULL);
	if (status != KVT_OK)
		return status;
	rig->ids = calloc(n, sizeof(*rig->ids));
	if (rig->ids == NULL)
		return KVT_ENOMEM;
	for (uint64_t i = 0; i < n; i++)
		rig->ids[i] = (int64_t)i;
	rig->target = (struct kvt_cuda_target){&rig->paged, rig->device + wide};
	for (int scatter = 0; scatter < 2; scatter++)
		rig->jobs[scatter] = (struct kvt_gpu_job){.size = sizeof(rig->jobs[0]),
			.blocks = rig->ids, .block_count = n, .count = n,
			.segments = &rig->segments[scatter], .segment_count = 1};
	return KVT_OK;
}

/* Allocates pinned memory for the chunks, and writes the layer's address for the kernel. */
static enum kvt_status make_chunks(struct kvt_gpu_engine *e, struct rig *rig)
{
	uint64_t bytes = kvt_gpu_paged_chunk(&rig->paged, rig->jobs[0].count), device = 0;
	void *stream = e->lanes[0].streams[0];
	enum kvt_status status;

	if (!kvt_cuda_fine(e,
		e->driver.host_alloc(&rig->host, 2 * bytes, KVT_CUDA_REGISTER_PORTABLE_MAP),
		"pinned memory for a calibration"))
		return KVT_FULL;
	for (uint64_t scatter = 0; scatter < 2; scatter++)
		rig->segments[scatter] =
			(struct kvt_segment){(char *)rig->host + scatter * bytes, bytes, 0};
	if (!kvt_cuda_fine(e, e->driver.host_pointer(&device, rig->host, 0), "mapping memory"))
		return KVT_EIO;
	memcpy(rig->host, rig->paged.layers, sizeof(rig->paged.layers[0]));
	if (!kvt_cuda_fine(e,
		e->driver.copy_up(rig->target.layers, rig->host, sizeof(uint64_t), stream),
		"copying an address") ||
		!kvt_cuda_fine(e, e->driver.stream_synchronize(stream), "copying an address"))
		return KVT_EIO;
	status = kvt_cuda_piece_add(e,
		(struct kvt_cuda_piece){(uint64_t)(uintptr_t)rig->host, 2 * bytes, device});
	if (status != KVT_OK)
		return status;
	rig->known = true;
	rig->count = (uint32_t)(TRIAL / bytes);
	if (rig->count < FEWEST_OPS)
		rig->count = FEWEST_OPS;
	if (rig->count > MOST_OPS)
		rig->count = MOST_OPS;
	return KVT_OK;
}

static void rig_finish(struct kvt_gpu_engine *e, struct rig *rig)
{
	for (uint32_t i = 0; i < MOST_OPS; i++)
		kvt_cuda_op_finish(e, &rig->ops[i]);
	if (rig->known)
		kvt_cuda_piece_drop(e, (uint64_t)(uintptr_t)rig->host);
	if (rig->host != NULL)
		(void)kvt_cuda_fine(e, e->driver.host_free(rig->host), "freeing pinned memory");
	if (rig->device != 0)
		(void)kvt_cuda_fine(e, e->driver.memory_free(rig->device), "freeing memory");
	kvt_gpu_paged_finish(&rig->paged);
	free(rig->ids);
}

static void drain(struct kvt_gpu_engine *e)
{
	for (uint32_t scatter = 0; scatter < 2; scatter++)
		for (uint32_t i = 0; i < e->streams; i++)
			(void)kvt_cuda_fine(e,
				e->driver.stream_synchronize(e->lanes[scatter].streams[i]),
				"waiting for a calibration");
}

/* Begins `count` operations at once, by one method. Returns bytes per second until the last one was
 * over; 0: failure. */
static double one_pass(struct kvt_gpu_engine *e, struct rig *rig, enum ways ways, uint32_t method,
	uint32_t count)
{
	const struct kvt_surroundings *s = e->setup.surroundings;
	int64_t begun = kvt_now(s), spent = 0;
	bool fine = true;
	uint32_t started = 0;

	for (; started < count && fine; started++) {
		struct kvt_cuda_op *op = &rig->ops[started];
		bool scatter = ways == BOTH ? started % 2 == 1 : ways == SCATTERS;

		fine = kvt_gpu_move_make(&rig->paged, &rig->jobs[scatter], scatter, NULL, &op->move) ==
			KVT_OK;
		if (!fine)
			break;
		op->target = &rig->target;
		op->method = method;
		kvt_cuda_start(e, op);
	}
	for (uint32_t i = 0; i < started; i++) {
		while (!kvt_cuda_over(e, &rig->ops[i]) && spent <= PATIENCE)
			spent = kvt_now(s) - begun;
		fine = fine && !rig->ops[i].failed;
	}
	if (spent > PATIENCE)
		drain(e); /* the memory is freed next, so no operation may be under way */
	spent = kvt_now(s) - begun;
	for (uint32_t i = 0; i < started; i++) {
		free(rig->ops[i].move);
		rig->ops[i].move = NULL;
	}
	if (!fine || spent > PATIENCE)
		return 0;
	return (double)rig->segments[0].bytes * count / (double)(spent + 1) * 1e9;
}

/* Returns bytes per second: the better of two passes. A short pass before them warms up; if it
 * shows that the method is far slower than `other`, it is the only one. 0: failure. */
static double rate_of(struct kvt_gpu_engine *e, struct rig *rig, enum ways ways, uint32_t method,
	double other)
{
	double warm = one_pass(e, rig, ways, method, WARM_OPS), rate, again;
	double bytes = (double)rig->segments[0].bytes * WARM_OPS;

	if (warm <= 0 || (warm * HOPELESS < other && bytes / warm * 1e9 > LONG))
		return warm;
	rate = one_pass(e, rig, ways, method, rig->count);
	again = one_pass(e, rig, ways, method, rig->count);
	if (rate <= 0 || again <= 0)
		return 0;
	return rate > again ? rate : again;
}

/* Measures a method. *score: the best scores so far, of gathers and of scatters. */
static void measure_method(
	struct kvt_gpu_engine *e, struct rig *rig, uint32_t class, uint32_t method, double score[2])
{
	double *both = &e->both[class][method];

	for (uint32_t scatter = 0; scatter < 2; scatter++)
		e->rates[scatter][class][method] = rate_of(e, rig, scatter ? SCATTERS : GATHERS,
			method, e->rates[scatter][class][e->choice[scatter][class]]);
	*both = rate_of(e, rig, BOTH, method, e->both[class][e->choice[0][class]]);
	for (uint32_t scatter = 0; scatter < 2; scatter++) {
		double alone = e->rates[scatter][class][method];

		if (alone <= 0 || alone + *both / 2 <= score[scatter])
			continue;
		score[scatter] = alone + *both / 2;
		e->choice[scatter][class] = method;
	}
}

static void measure_class(struct kvt_gpu_engine *e, uint32_t class)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	double score[2] = {0};
	enum kvt_status status;

	if (rig == NULL)
		return;
	status = make_blocks(e, rig, class_bytes[class]);
	if (status == KVT_OK)
		status = make_chunks(e, rig);
	for (uint32_t m = KVT_GPU_KERNEL; status == KVT_OK && m <= KVT_GPU_STAGING; m++)
		if (kvt_cuda_can(e, m, NULL) && !e->lost)
			measure_method(e, rig, class, m, score);
	rig_finish(e, rig);
	free(rig);
}

/* Writes a key without blanks that has everything on which a calibration depends, and at its end
 * the number of the way of measuring. */
static void make_key(const struct kvt_gpu_engine *e, char *key, size_t size)
{
	const struct kvt_gpu_shape *shape = &e->setup.paged->shape;
	const struct kvt_gpu_config *c = e->setup.config;

	(void)snprintf(key, size, "%s/%d/%d/%u/%u/%u/%u/%u/%llu/%c2", e->name, e->driver_version,
		e->capability, shape->run.by, shape->block.by, shape->unit, e->streams,
		e->multiprocessors, (unsigned long long)c->staging_bytes, e->kernel ? 'k' : '-');
	for (char *at = key; *at != '\0'; at++)
		if (*at <= ' ' || *at > '~')
			*at = '_';
}

static bool recall(struct kvt_gpu_engine *e, const char *key)
{
	char digits[KVT_GPU_MEMO_DIGITS];

	if (!kvt_gpu_memo_load(e->setup.config->memo, key, digits))
		return false;
	for (uint32_t i = 0; i < KVT_GPU_MEMO_DIGITS; i++)
		if (!kvt_cuda_can(e, (uint32_t)(digits[i] - '0'), NULL))
			return false;
	for (uint32_t i = 0; i < KVT_GPU_MEMO_DIGITS; i++)
		e->choice[i / KVT_CUDA_CLASSES][i % KVT_CUDA_CLASSES] = (uint32_t)(digits[i] - '0');
	return true;
}

static void keep(struct kvt_gpu_engine *e, const char *key)
{
	char digits[KVT_GPU_MEMO_DIGITS];

	for (uint32_t i = 0; i < KVT_GPU_MEMO_DIGITS; i++) {
		uint32_t scatter = i / KVT_CUDA_CLASSES, class = i % KVT_CUDA_CLASSES;

		digits[i] = (char)('0' + e->choice[scatter][class]);
		if (e->rates[scatter][class][e->choice[scatter][class]] <= 0)
			/* chosen by rule: a later start measures, if there is memory then */
			return;
	}
	if (!kvt_gpu_memo_save(e->setup.config->memo, key, digits))
		kvt_note(e->setup.surroundings, KVT_LOG_DEBUG, "gpu: the calibration is not kept");
}

void kvt_cuda_tune(struct kvt_gpu_engine *e)
{
	uint32_t wanted = e->setup.config->method;
	char key[256];

	choose_by_rule(e);
	if (wanted != KVT_GPU_AUTO) {
		if (!kvt_cuda_can(e, wanted, NULL))
			wanted = KVT_GPU_COPIES;
		for (uint32_t class = 0; class < KVT_CUDA_CLASSES; class++)
			e->choice[0][class] = e->choice[1][class] = wanted;
		return;
	}
	make_key(e, key, sizeof(key));
	if (recall(e, key))
		return;
	for (uint32_t class = 0; class < KVT_CUDA_CLASSES && !e->lost; class++)
		measure_class(e, class);
	keep(e, key);
}
