/*
 * cuda.c - the CUDA backend: creates and destroys engines.
 *
 * The backend uses the device's primary context, like the CUDA runtime of the same process: so it
 * can use streams, events and memory of the framework that the LLM engine uses. The backend retains
 * the context, and makes it current only for the length of a call, so that no thread keeps a
 * context that it did not have and no context appears on another device.
 *
 * Streams do not synchronise with the default stream. Streams of scatters have the higher priority,
 * because an LLM engine waits for loads, not for stores. Without a compiled kernel, or on a device
 * that it does not fit, only copies are possible; without staging memory, kernel and copies.
 */
#include "gpu/cuda_backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/image.h"

static const char *const method_names[] = {"auto", "kernel", "copies", "staging"};

static int attribute(struct kvt_gpu_engine *e, int which)
{
	int value = 0;

	return e->driver.device_attribute(&value, which, e->device) == KVT_CUDA_SUCCESS ? value : 0;
}

/* Finds driver and device, before a context is made. */
static bool find_device(struct kvt_gpu_engine *e)
{
	struct kvt_cuda_driver *d = &e->driver;

	if (!kvt_cuda_fine(e, d->init(0), "starting the driver") ||
		!kvt_cuda_fine(e, d->driver_version(&e->driver_version), "asking its version") ||
		!kvt_cuda_fine(e, d->device_get(&e->device, e->setup.config->device),
			"finding the device") ||
		!kvt_cuda_fine(e, d->device_name(e->name, sizeof(e->name), e->device),
			"asking its name"))
		return false;
	e->name[sizeof(e->name) - 1] = '\0';
	e->capability = attribute(e, KVT_CUDA_MAJOR) * 10 + attribute(e, KVT_CUDA_MINOR);
	e->can_pin = attribute(e, KVT_CUDA_CAN_REGISTER) != 0;
	e->batches = d->copy_batch != NULL || d->copy_batch_1 != NULL;
	return true;
}

/* Computes how many multiprocessors kernels may use together, and how many each of the kernels that
 * may run at once. */
static void share_out(struct kvt_gpu_engine *e)
{
	const struct kvt_gpu_config *c = e->setup.config;
	uint32_t all = (uint32_t)attribute(e, KVT_CUDA_MULTIPROCESSORS);
	uint32_t may = (uint32_t)(all * c->multiprocessor_share);

	may = may > 2 ? may : 2; /* at least one for each direction */
	e->streams = c->streams < may / 2 ? c->streams : may / 2;
	e->grid = may / (2 * e->streams);
	e->multiprocessors = e->grid * 2 * e->streams;
}

/* Copies the addresses of a layout's layers to memory that kernels can read. */
static bool upload_layers(struct kvt_gpu_engine *e, struct kvt_cuda_target *target)
{
	uint64_t bytes = target->paged->shape.layers * sizeof(target->paged->layers[0]);
	void *stream = e->lanes[0].streams[0];
	struct kvt_cuda_driver *d = &e->driver;

	return kvt_cuda_fine(e, d->memory_alloc(&target->layers, bytes), "memory of the device") &&
		kvt_cuda_fine(e, d->copy_up(target->layers, target->paged->layers, bytes, stream),
			"copying addresses") &&
		kvt_cuda_fine(e, d->stream_synchronize(stream), "copying addresses");
}

/* Loads the kernels, if some fit this device, and copies the layers' addresses for them. */
static bool load_kernel(struct kvt_gpu_engine *e)
{
	struct kvt_cuda_driver *d = &e->driver;

	return kvt_cuda_image() != NULL &&
		kvt_cuda_fine(e, d->module_load(&e->module, kvt_cuda_image()),
			"loading the kernel") &&
		upload_layers(e, &e->targets[0]) &&
		kvt_cuda_fine(e, d->module_function(&e->kernel, e->module, KVT_CUDA_KERNEL),
			"finding the kernel") &&
		kvt_cuda_fine(e,
			d->module_function(&e->turn_kernel, e->module, KVT_CUDA_TURN_KERNEL),
			"finding the kernel that turns keys");
}

static bool make_streams(struct kvt_gpu_engine *e)
{
	int least = 0, greatest = 0;

	if (!kvt_cuda_fine(e, e->driver.priorities(&least, &greatest), "asking for priorities"))
		least = greatest = 0;
	for (uint32_t scatter = 0; scatter < 2; scatter++)
		for (uint32_t i = 0; i < e->streams; i++)
			if (!kvt_cuda_fine(e,
				e->driver.stream_create(&e->lanes[scatter].streams[i],
					KVT_CUDA_STREAM_NON_BLOCKING, scatter ? greatest : least),
				"making a stream"))
				return false;
	return true;
}

static bool make_staging(struct kvt_gpu_engine *e)
{
	for (uint32_t scatter = 0; scatter < 2; scatter++)
		for (uint32_t i = 0; i < e->streams; i++)
			if (!kvt_cuda_fine(e,
				e->driver.memory_alloc(&e->lanes[scatter].staging[i],
					e->setup.config->staging_bytes),
				"memory of the device for staging"))
				return false;
	return true;
}

/* Frees all parts of an engine, the last one first. The context must be current. */
static void unmake(struct kvt_gpu_engine *e)
{
	for (uint32_t scatter = 0; scatter < 2; scatter++)
		for (uint32_t i = 0; i < KVT_CUDA_STREAMS; i++)
			if (e->lanes[scatter].streams[i] != NULL)
				(void)kvt_cuda_fine(e,
					e->driver.stream_synchronize(e->lanes[scatter].streams[i]),
					"waiting for a stream");
	for (uint32_t i = 0; i < e->setup.config->ops; i++)
		kvt_cuda_op_finish(e, &e->ops[i]);
	kvt_cuda_unpin_all(e);
	for (uint32_t scatter = 0; scatter < 2; scatter++)
		for (uint32_t i = 0; i < KVT_CUDA_STREAMS; i++) {
			struct kvt_cuda_lane *lane = &e->lanes[scatter];

			if (lane->staging[i] != 0)
				(void)kvt_cuda_fine(e, e->driver.memory_free(lane->staging[i]),
					"freeing memory");
			if (lane->streams[i] != NULL)
				(void)kvt_cuda_fine(e, e->driver.stream_destroy(lane->streams[i]),
					"ending a stream");
		}
	for (uint32_t i = 0; i < e->target_count; i++)
		if (e->targets[i].layers != 0)
			(void)kvt_cuda_fine(
				e, e->driver.memory_free(e->targets[i].layers), "freeing memory");
	if (e->module != NULL)
		(void)kvt_cuda_fine(e, e->driver.module_unload(e->module), "unloading the kernel");
}

static enum kvt_status make(struct kvt_gpu_engine *e)
{
	struct kvt_cuda_visit visit;
	enum kvt_status status = KVT_OK;

	if (!kvt_cuda_fine(e, e->driver.context_retain(&e->context, e->device), "taking a context"))
		return KVT_ENOTSUP;
	if (!kvt_cuda_enter(e, &visit)) {
		(void)e->driver.context_release(e->device);
		return KVT_ENOTSUP;
	}
	share_out(e);
	if (!make_streams(e)) {
		status = KVT_EIO;
	} else {
		if (!load_kernel(e))
			e->kernel = e->turn_kernel = NULL;
		e->can_stage = e->kernel != NULL && make_staging(e);
		kvt_cuda_tune(e);
	}
	if (status == KVT_OK && e->lost)
		status = KVT_EIO;
	if (status != KVT_OK)
		unmake(e);
	kvt_cuda_leave(e, &visit);
	if (status != KVT_OK)
		(void)e->driver.context_release(e->device);
	return status;
}

static size_t cuda_describe(struct kvt_gpu_engine *e, char *text, size_t bytes);

static void tell(struct kvt_gpu_engine *e)
{
	char text[2048], *line = text, *end;

	(void)cuda_describe(e, text, sizeof(text));
	for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		*end = '\0';
		kvt_note(e->setup.surroundings, KVT_LOG_INFO, "gpu: %s", line);
	}
}

static enum kvt_status cuda_create(const struct kvt_gpu_setup *setup, struct kvt_gpu_engine **out)
{
	struct kvt_gpu_engine *e = calloc(1, sizeof(*e));
	enum kvt_status status = KVT_ENOMEM;

	if (e == NULL)
		return KVT_ENOMEM;
	e->setup = *setup;
	e->targets[0].paged = setup->paged;
	e->target_count = 1;
	e->ops = calloc(setup->config->ops, sizeof(*e->ops));
	if (e->ops == NULL || pthread_mutex_init(&e->lock, NULL) != 0)
		goto out_memory;
	status = kvt_cuda_driver_open(&e->driver, setup->config->driver, setup->surroundings);
	if (status != KVT_OK)
		goto out_lock;
	status = find_device(e) ? make(e) : KVT_ENOTSUP;
	if (status == KVT_OK) {
		tell(e);
		*out = e;
		return KVT_OK;
	}
	kvt_cuda_driver_close(&e->driver);
out_lock:
	pthread_mutex_destroy(&e->lock);
out_memory:
	free(e->ops);
	free(e);
	return status;
}

static void cuda_destroy(struct kvt_gpu_engine *e)
{
	struct kvt_cuda_visit visit;
	bool entered = kvt_cuda_enter(e, &visit);

	/* if the context cannot be made current, at least the backend's own memory is freed */
	unmake(e);
	if (entered)
		kvt_cuda_leave(e, &visit);
	(void)e->driver.context_release(e->device);
	kvt_cuda_driver_close(&e->driver);
	pthread_mutex_destroy(&e->lock);
	free(e->ops);
	free(e);
}

static enum kvt_status add_target(struct kvt_gpu_engine *e, const struct kvt_gpu_paged *paged)
{
	struct kvt_cuda_target *target = &e->targets[e->target_count];

	*target = (struct kvt_cuda_target){.paged = paged};
	if (upload_layers(e, target)) {
		e->target_count++;
		return KVT_OK;
	}
	if (target->layers != 0)
		(void)kvt_cuda_fine(e, e->driver.memory_free(target->layers), "freeing memory");
	return KVT_EIO;
}

static enum kvt_status cuda_add_view(struct kvt_gpu_engine *e, const struct kvt_gpu_paged *paged)
{
	enum kvt_status status = KVT_EIO;
	struct kvt_cuda_visit visit;

	if (e->turn_kernel == NULL)
		return KVT_ENOTSUP;
	pthread_mutex_lock(&e->lock);
	if (!e->lost && kvt_cuda_enter(e, &visit)) {
		status = add_target(e, paged);
		kvt_cuda_leave(e, &visit);
	}
	pthread_mutex_unlock(&e->lock);
	return status;
}

static void cuda_stats(struct kvt_gpu_engine *e, struct kvt_gpu_stats *out)
{
	uint64_t refused = out->refused;
	uint32_t size = out->size;

	pthread_mutex_lock(&e->lock);
	*out = e->stats;
	out->multiprocessors = e->kernel != NULL ? e->multiprocessors : 0;
	pthread_mutex_unlock(&e->lock);
	out->size = size;
	out->refused = refused;
}

/* Appends to a text, of which *len bytes are used, as much as fits. */
__attribute__((format(printf, 4, 5))) static void add(
	char *text, size_t bytes, size_t *len, const char *format, ...)
{
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(*len < bytes ? text + *len : NULL, *len < bytes ? bytes - *len : 0, format,
		arguments);
	va_end(arguments);
	if (n > 0)
		*len += (size_t)n;
}

static size_t cuda_describe(struct kvt_gpu_engine *e, char *text, size_t bytes)
{
	static const char *const sizes[KVT_CUDA_CLASSES] = {"to 1 MiB", "to 8 MiB", "more"};
	const struct kvt_gpu_shape *shape = &e->setup.paged->shape;
	size_t len = 0;

	add(text, bytes, &len,
		"cuda: %s, sm_%d, driver %d.%d, runs of %u bytes, %u streams each way, "
		"kernels on %u multiprocessors at most%s%s\n",
		e->name, e->capability, e->driver_version / 1000, e->driver_version % 1000 / 10,
		shape->run.by, e->streams, e->kernel != NULL ? e->multiprocessors : 0,
		e->batches ? "" : ", copies one by one", e->lost ? ", lost" : "");
	for (uint32_t scatter = 0; scatter < 2; scatter++)
		for (uint32_t class = 0; class < KVT_CUDA_CLASSES; class++) {
			const double *rates = e->rates[scatter][class];

			add(text, bytes, &len, "%s %s: %s", scatter ? "scatter" : "gather",
				sizes[class], method_names[e->choice[scatter][class]]);
			for (uint32_t m = KVT_GPU_KERNEL; m <= KVT_GPU_STAGING; m++)
				if (rates[m] > 0)
					add(text, bytes, &len, ", %s %.1f GB/s (both ways %.1f)",
						method_names[m], rates[m] / 1e9,
						e->both[class][m] / 1e9);
			add(text, bytes, &len, "\n");
		}
	return len;
}

static const struct kvt_gpu_backend backend = {
	.version = KVT_GPU_BACKEND,
	.name = "cuda",
	.create = cuda_create,
	.destroy = cuda_destroy,
	.add_view = cuda_add_view,
	.begin = kvt_cuda_begin,
	.poll = kvt_cuda_poll,
	.pin = kvt_cuda_pin,
	.stats = cuda_stats,
	.describe = cuda_describe,
};

const struct kvt_gpu_backend *kvt_gpu_cuda_backend(uint32_t version)
{
	return version == KVT_GPU_BACKEND ? &backend : NULL;
}
