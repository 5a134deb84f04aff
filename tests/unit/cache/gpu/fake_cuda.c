/*
 * fake_cuda.c - a driver without a device: libcuda's entry points over memory of this machine.
 */
#include "fake_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOVER  ((void *)2) /* kernels */
#define TURNER ((void *)3)

struct fake_state fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .random = 1, .streams[0].alive = true};

static _Thread_local struct {
	int depth;
	int capture_mode;
} thread;

static uint64_t dice(uint64_t n)
{
	fake.random = fake.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (fake.random >> 33) % n;
}

/* --- calls that fail --- */

/* Begins a call, under lock. */
static int enter(const char *name, bool needs_context)
{
	pthread_mutex_lock(&fake.lock);
	fake.calls += !fake.paused;
	if (!fake.paused && fake.nth != 0 && fake.calls == fake.nth) {
		fake.failed = name;
		return fake.error;
	}
	if (fake.persistent != NULL && strcmp(name, fake.persistent) == 0) {
		fake.failed = name;
		return fake.persistent_error;
	}
	if (needs_context && thread.depth == 0) {
		fake.misuses++;
		return NO_CONTEXT;
	}
	return OK;
}

static int leave(int error)
{
	pthread_mutex_unlock(&fake.lock);
	return error;
}

#define CALL(name, needs_context) \
	int error = enter(name, needs_context); \
	if (error != OK) \
	return leave(error)

/* --- memory --- */

static struct range *range_of(uint64_t address, uint64_t bytes, const char *kinds)
{
	for (int i = 0; i < MOST; i++) {
		struct range *r = &fake.ranges[i];

		if (r->bytes > 0 && strchr(kinds, r->kind) != NULL && address >= r->base &&
			address + bytes <= r->base + r->bytes)
			return r;
	}
	return NULL;
}

static bool touches(uint64_t address, uint64_t bytes, const char *kinds)
{
	for (int i = 0; i < MOST; i++) {
		struct range *r = &fake.ranges[i];

		if (r->bytes > 0 && strchr(kinds, r->kind) != NULL &&
			address < r->base + r->bytes && r->base < address + bytes)
			return true;
	}
	return false;
}

static int remember(uint64_t base, uint64_t bytes, char kind)
{
	for (int i = 0; i < MOST; i++)
		if (fake.ranges[i].bytes == 0) {
			fake.ranges[i] = (struct range){base, bytes, kind, false};
			return OK;
		}
	return NO_MEMORY;
}

static bool forget(uint64_t base, char kind)
{
	for (int i = 0; i < MOST; i++)
		if (fake.ranges[i].bytes > 0 && fake.ranges[i].base == base &&
			fake.ranges[i].kind == kind) {
			fake.ranges[i].bytes = 0;
			return true;
		}
	fake.misuses++;
	return false;
}

/* Memory of this machine in a copy: in one pinned piece, or in none. */
static bool host_fine(uint64_t address, uint64_t bytes)
{
	return range_of(address, bytes, "hr") != NULL || !touches(address, bytes, "hrd");
}

/* --- running --- */

/* Which memory the kernel's chunk side is; *shift turns its addresses into ours. */
static bool kernel_fine(const struct kvt_gpu_launch *l, uint64_t *shift, bool *across)
{
	struct kvt_gpu_pair first = kvt_gpu_place(l, 0);
	const struct range *flat = range_of(first.flat, l->unit, "d");

	*shift = 0;
	*across = flat == NULL;
	if (flat == NULL) {
		*shift = MAPPED;
		flat = range_of(first.flat - MAPPED, l->unit, "hr");
	}
	if (flat == NULL || l->units == 0)
		return false;
	for (uint32_t i = 0; i < l->units; i++) {
		struct kvt_gpu_pair p = kvt_gpu_place(l, i);

		if (range_of(p.flat - *shift, l->unit, *across ? "hr" : "d") != flat ||
			range_of(p.paged, l->unit, "d") == NULL || p.paged % l->unit != 0 ||
			p.flat % l->unit != 0)
			return false;
	}
	return true;
}

static void run_kernel(struct action *a)
{
	uint32_t threads = a->blocks * 512;
	uint64_t shift;
	bool across;

	if (fake.idle)
		a->launch->units = 1;
	if (!kernel_fine(a->launch, &shift, &across)) {
		fake.misuses++;
	} else {
		a->launch->flat -= shift;
		for (uint32_t i = 0; i < threads; i++)
			kvt_gpu_thread(a->launch, i, threads);
	}
	a->cost = across ? FAKE_KERNEL_ACROSS : FAKE_KERNEL_INSIDE;
	free(a->launch);
}

/* Are all values that it turns the device's? */
static bool turn_fine(const struct kvt_gpu_turning *t)
{
	uint32_t bytes = t->values == KVT_GPU_F32 ? 4 : 2;

	for (uint32_t i = 0; i < t->count; i++) {
		struct kvt_gpu_two two = kvt_gpu_two_at(t, i);

		if (range_of(two.a, bytes, "d") == NULL || range_of(two.b, bytes, "d") == NULL ||
			(two.a | two.b) % bytes != 0)
			return false;
	}
	return t->count > 0;
}

static void run_turn(struct action *a)
{
	uint32_t threads = a->blocks * 512;

	if (!turn_fine(a->turning))
		fake.misuses++;
	else
		for (uint32_t i = 0; i < threads; i++)
			kvt_gpu_turn_thread(a->turning, &a->turning->angles, i, threads);
	a->cost = FAKE_KERNEL_INSIDE;
	free(a->turning);
}

static bool runnable(const struct stream *s)
{
	const struct action *a = s->first;

	return a != NULL && (a->kind != WAIT || a->event->done >= a->number);
}

static void run_first(struct stream *s)
{
	struct action *a = s->first;

	s->first = a->next;
	switch (a->kind) {
	case COPY:
		if (!fake.idle || a->bytes <= 64) /* addresses are always needed */
			memcpy((void *)(uintptr_t)a->to, (const void *)(uintptr_t)a->from,
				a->bytes);
		if (fake.ordered + 1 < sizeof(fake.order))
			fake.order[fake.ordered++] = a->direction;
		break;
	case KERNEL:
		run_kernel(a);
		break;
	case TURN:
		run_turn(a);
		break;
	case RECORD:
		if (a->event->done < a->number)
			a->event->done = a->number;
		break;
	case WAIT:
	case NOTHING:
		break;
	}
	if (a->kind == RECORD || a->kind == WAIT)
		a->event->named--;
	else
		fake.now += fake.fixed[a->cost] + (int64_t)(a->bytes / 1024) * fake.kib[a->cost];
	free(a);
}

bool fake_step(void)
{
	uint64_t from = dice(64);

	for (uint64_t i = 0; i < 64; i++) {
		struct stream *s = &fake.streams[(from + i) % 64];

		if (runnable(s)) {
			run_first(s);
			return true;
		}
	}
	return false;
}

static void steps(void)
{
	fake.now += 100;
	/* mostly little, so that orders differ; now and then much, so that it ends */
	for (uint64_t n = dice(4) == 0 ? dice(4000) : dice(4); n > 0 && !fake.held; n--)
		if (!fake_step())
			break;
}

static struct stream *stream_of(void *handle)
{
	uint64_t i = (uint64_t)(uintptr_t)handle;

	if (i < 64 && fake.streams[i].alive)
		return &fake.streams[i];
	fake.misuses++;
	return &fake.streams[0];
}

static int append(void *handle, struct action action)
{
	struct stream *s = stream_of(handle);
	struct action *a = malloc(sizeof(*a));

	*a = action;
	a->next = NULL;
	if (s->first == NULL)
		s->first = a;
	else
		s->last->next = a;
	s->last = a;
	if (a->event != NULL)
		a->event->named++;
	return OK;
}

EXPORT void fake_cuda_delay(void *stream, uint32_t steps)
{
	pthread_mutex_lock(&fake.lock);
	for (uint32_t i = 0; i < steps; i++)
		(void)append(stream, (struct action){.kind = NOTHING});
	pthread_mutex_unlock(&fake.lock);
}

/* --- the driver --- */

EXPORT int cuInit(unsigned flags);
EXPORT int cuInit(unsigned flags)
{
	CALL("cuInit", false);
	return leave(flags == 0 ? OK : INVALID);
}

EXPORT int cuDriverGetVersion(int *version);
EXPORT int cuDriverGetVersion(int *version)
{
	CALL("cuDriverGetVersion", false);
	*version = 13000;
	return leave(OK);
}

EXPORT int cuGetErrorName(int error, const char **text);
EXPORT int cuGetErrorName(int error, const char **text)
{
	*text = error == BAD_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OF_A_TEST";
	return OK;
}

EXPORT int cuDeviceGet(int *device, int ordinal);
EXPORT int cuDeviceGet(int *device, int ordinal)
{
	CALL("cuDeviceGet", false);
	*device = ordinal;
	return leave(ordinal < 2 ? OK : 101);
}

EXPORT int cuDeviceGetName(char *name, int bytes, int device);
EXPORT int cuDeviceGetName(char *name, int bytes, int device)
{
	CALL("cuDeviceGetName", false);
	snprintf(name, (size_t)bytes, "Fake device %d", device);
	return leave(OK);
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device);
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	CALL("cuDeviceGetAttribute", false);
	(void)device;
	*value = attribute == 16 ? 132 : attribute == 75 ? 9 : attribute == 76 ? 0 : 1;
	return leave(OK);
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device);
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
	CALL("cuDevicePrimaryCtxRetain", false);
	fake.others++;
	*context = (void *)(uintptr_t)(device + 1);
	return leave(OK);
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device);
EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
	CALL("cuDevicePrimaryCtxRelease", false);
	(void)device;
	fake.others--;
	return leave(OK);
}

EXPORT int cuCtxPushCurrent_v2(void *context);
EXPORT int cuCtxPushCurrent_v2(void *context)
{
	CALL("cuCtxPushCurrent", false);
	thread.depth += context != NULL;
	return leave(OK);
}

EXPORT int cuCtxPopCurrent_v2(void **context);
EXPORT int cuCtxPopCurrent_v2(void **context)
{
	*context = NULL;
	thread.depth--;
	return OK;
}

EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest);
EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CALL("cuCtxGetStreamPriorityRange", true);
	*least = 0;
	*greatest = -5;
	return leave(OK);
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode);
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int before = thread.capture_mode;

	thread.capture_mode = *mode;
	*mode = before;
	return OK;
}

EXPORT int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority);
EXPORT int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
	CALL("cuStreamCreateWithPriority", true);
	if (flags != 1 || priority > 0 || priority < -5)
		fake.misuses++;
	for (uintptr_t i = 1; i < 64; i++)
		if (!fake.streams[i].alive) {
			fake.streams[i].alive = true;
			*stream = (void *)i;
			return leave(OK);
		}
	return leave(NO_MEMORY);
}

static void drain(const struct stream *s)
{
	while (s->first != NULL && fake_step())
		continue;
}

EXPORT int cuStreamDestroy_v2(void *stream);
EXPORT int cuStreamDestroy_v2(void *stream)
{
	CALL("cuStreamDestroy", true);
	drain(stream_of(stream));
	stream_of(stream)->alive = false;
	return leave(OK);
}

EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned flags);
EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
	struct event *e = event;

	CALL("cuStreamWaitEvent", true);
	if (flags != 0 || !e->alive)
		fake.misuses++;
	return leave(append(
		stream, (struct action){.kind = WAIT, .event = e, .number = e->recorded}));
}

EXPORT int cuStreamQuery(void *stream);
EXPORT int cuStreamQuery(void *stream)
{
	CALL("cuStreamQuery", true);
	steps();
	return leave(stream_of(stream)->first == NULL ? OK : NOT_READY);
}

EXPORT int cuStreamSynchronize(void *stream);
EXPORT int cuStreamSynchronize(void *stream)
{
	CALL("cuStreamSynchronize", true);
	drain(stream_of(stream));
	return leave(OK);
}

EXPORT int cuEventCreate(void **event, unsigned flags);
EXPORT int cuEventCreate(void **event, unsigned flags)
{
	struct event *e;

	CALL("cuEventCreate", true);
	if (flags != 2)
		fake.misuses++;
	for (e = fake.events; e < fake.events + EVENTS; e++)
		if (!e->alive && e->named == 0) {
			*e = (struct event){.alive = true};
			*event = e;
			return leave(OK);
		}
	return leave(NO_MEMORY);
}

EXPORT int cuEventDestroy_v2(void *event);
EXPORT int cuEventDestroy_v2(void *event)
{
	struct event *e = event;

	CALL("cuEventDestroy", true);
	fake.misuses += !e->alive;
	e->alive = false; /* used again once no action names it */
	return leave(OK);
}

EXPORT int cuEventRecord(void *event, void *stream);
EXPORT int cuEventRecord(void *event, void *stream)
{
	struct event *e = event;

	CALL("cuEventRecord", true);
	fake.misuses += !e->alive;
	e->recorded++;
	return leave(append(
		stream, (struct action){.kind = RECORD, .event = e, .number = e->recorded}));
}

EXPORT int cuEventQuery(void *event);
EXPORT int cuEventQuery(void *event)
{
	struct event *e = event;

	CALL("cuEventQuery", true);
	steps();
	return leave(e->done >= e->recorded ? OK : NOT_READY);
}

static int make_memory(uint64_t *address, uint64_t bytes, char kind)
{
	void *at = NULL;

	if (bytes == 0 || posix_memalign(&at, 256, bytes) != 0)
		return NO_MEMORY;
	memset(at, 0xa5, bytes);
	*address = (uint64_t)(uintptr_t)at;
	return remember(*address, bytes, kind);
}

EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes);
EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
	CALL("cuMemAlloc", true);
	return leave(make_memory(address, bytes, 'd'));
}

static int free_memory(uint64_t address, char kind)
{
	if (!forget(address, kind))
		return INVALID;
	while (fake_step())
		continue; /* as the driver: what is under way ends first */
	free((void *)(uintptr_t)address);
	return OK;
}

EXPORT int cuMemFree_v2(uint64_t address);
EXPORT int cuMemFree_v2(uint64_t address)
{
	CALL("cuMemFree", true);
	return leave(free_memory(address, 'd'));
}

EXPORT int cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
EXPORT int cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
	uint64_t at = 0;

	CALL("cuMemHostAlloc", true);
	fake.misuses += flags != 3;
	error = make_memory(&at, bytes, 'h');
	*address = (void *)(uintptr_t)at;
	return leave(error);
}

EXPORT int cuMemFreeHost(void *address);
EXPORT int cuMemFreeHost(void *address)
{
	CALL("cuMemFreeHost", true);
	return leave(free_memory((uint64_t)(uintptr_t)address, 'h'));
}

EXPORT int cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags);
EXPORT int cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags)
{
	uint64_t at = (uint64_t)(uintptr_t)address;

	CALL("cuMemHostRegister", true);
	fake.misuses += flags != 3 || at % 4096 != 0 || bytes % 4096 != 0 ||
		thread.capture_mode != 2;
	return leave(touches(at, bytes, "hr") ? ALREADY : remember(at, bytes, 'r'));
}

EXPORT int cuMemHostUnregister(void *address);
EXPORT int cuMemHostUnregister(void *address)
{
	CALL("cuMemHostUnregister", true);
	return leave(forget((uint64_t)(uintptr_t)address, 'r') ? OK : INVALID);
}

EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *device, void *host, unsigned flags);
EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *device, void *host, unsigned flags)
{
	uint64_t at = (uint64_t)(uintptr_t)host;

	CALL("cuMemHostGetDevicePointer", true);
	*device = at + MAPPED;
	return leave(flags == 0 && range_of(at, 1, "hr") != NULL ? OK : INVALID);
}

static int copy(uint64_t to, uint64_t from, uint64_t bytes, void *stream, char direction,
	enum fake_cost cost)
{
	uint64_t device = direction == 'u' ? to : from, host = direction == 'u' ? from : to;
	struct stream *s;

	if (bytes == 0 || range_of(device, bytes, "d") == NULL || !host_fine(host, bytes)) {
		fake.misuses++;
		return INVALID;
	}
	(void)append(stream, (struct action){.kind = COPY, .cost = cost, .to = to, .from = from,
		.bytes = bytes, .direction = direction});
	s = stream_of(stream);
	if (range_of(host, bytes, "hr") == NULL) /* pageable: the call takes as long as the copy */
		drain(s);
	return OK;
}

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream);
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream)
{
	CALL("cuMemcpyHtoDAsync", true);
	return leave(copy(to, (uint64_t)(uintptr_t)from, bytes, stream, 'u', FAKE_COPY));
}

EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream);
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
	CALL("cuMemcpyDtoHAsync", true);
	return leave(copy((uint64_t)(uintptr_t)to, from, bytes, stream, 'd', FAKE_COPY));
}

struct kvt_cuda_copy_attributes; /* as the caller names it: clang's sanitizer compares the types */

EXPORT int cuMemcpyBatchAsync_v2(uint64_t *to, uint64_t *from, size_t *bytes, size_t count,
	struct kvt_cuda_copy_attributes *attributes, size_t *first, size_t attribute_count,
	void *stream);
EXPORT int cuMemcpyBatchAsync_v2(uint64_t *to, uint64_t *from, size_t *bytes, size_t count,
	struct kvt_cuda_copy_attributes *attributes, size_t *first, size_t attribute_count,
	void *stream)
{
	CALL("cuMemcpyBatchAsync", true);
	if (fake.no_batches)
		return leave(NOT_SUPPORTED);
	fake.misuses += count == 0 || attributes == NULL || attribute_count != 1 ||
		first[0] != 0 || stream == NULL;
	fake.batches++;
	for (size_t i = 0; i < count && error == OK; i++)
		error = copy(to[i], from[i], bytes[i], stream,
			range_of(to[i], 1, "d") != NULL ? 'u' : 'd', FAKE_BATCHED);
	return leave(error);
}

EXPORT int cuModuleLoadData(void **module, const void *image);
EXPORT int cuModuleLoadData(void **module, const void *image)
{
	CALL("cuModuleLoadData", true);
	fake.others++;
	*module = (void *)1;
	return leave(image != NULL ? OK : INVALID);
}

EXPORT int cuModuleUnload(void *module);
EXPORT int cuModuleUnload(void *module)
{
	CALL("cuModuleUnload", true);
	fake.others--;
	return leave(module != NULL ? OK : INVALID);
}

EXPORT int cuModuleGetFunction(void **function, void *module, const char *name);
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name)
{
	CALL("cuModuleGetFunction", true);
	*function = strcmp(name, "kvt_gpu_turn") == 0 ? TURNER : MOVER;
	return leave(module != NULL && (*function == TURNER || strcmp(name, "kvt_gpu_move") == 0) ? OK : 500);
}

EXPORT int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
	unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream,
	void **arguments, void **extra);
EXPORT int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
	unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream,
	void **arguments, void **extra)
{
	struct kvt_gpu_launch *l;

	CALL("cuLaunchKernel", true);
	fake.misuses += (function != MOVER && function != TURNER) || grid_x == 0 || grid_y != 1 || grid_z != 1 ||
		block_x != 512 || block_y != 1 || block_z != 1 || shared_bytes != 0 || extra != NULL;
	if (grid_x > fake.widest)
		fake.widest = grid_x;
	if (function == TURNER) {
		struct kvt_gpu_turning *t = malloc(sizeof(*t));

		*t = *(struct kvt_gpu_turning *)arguments[0];
		fake.turns++;
		return leave(append(stream, (struct action){.kind = TURN, .turning = t, .blocks = grid_x,
			.bytes = t->count * (t->values == KVT_GPU_F32 ? UINT64_C(8) : 4)}));
	}
	l = malloc(sizeof(*l));
	*l = *(struct kvt_gpu_launch *)arguments[0];
	fake.launches++;
	return leave(append(
		stream, (struct action){.kind = KERNEL, .launch = l, .blocks = grid_x,
			.bytes = (uint64_t)l->units * l->unit}));
}
