/*
 * cuda_visit.c - makes the engine's context current for a call of the driver, and handles the
 * driver's errors.
 */
#include "gpu/cuda_backend.h"

bool kvt_cuda_fine(struct kvt_gpu_engine *e, int error, const char *what)
{
	uint64_t n;

	if (error == KVT_CUDA_SUCCESS)
		return true;
	if (kvt_cuda_fatal(error) && !e->lost) {
		e->lost = true;
		kvt_note(e->setup.surroundings, KVT_LOG_ERROR,
			"gpu: device %d was lost, %s: %s; nothing is copied from or to it any more",
			e->setup.config->device, what, kvt_cuda_error_text(&e->driver, error));
		return false;
	}
	n = ++e->errors; /* the first errors are logged, then fewer and fewer */
	if (n <= 8 || (n & (n - 1)) == 0)
		kvt_note(e->setup.surroundings, KVT_LOG_WARN, "gpu: %s: %s (%d), error number %llu",
			what, kvt_cuda_error_text(&e->driver, error), error,
			(unsigned long long)n);
	return false;
}

bool kvt_cuda_enter(struct kvt_gpu_engine *e, struct kvt_cuda_visit *visit)
{
	int error = e->driver.context_push(e->context);

	if (error != KVT_CUDA_SUCCESS)
		return kvt_cuda_fine(e, error, "entering the context");
	visit->capture_mode = KVT_CUDA_CAPTURE_RELAXED;
	visit->exchanged = e->driver.capture_mode != NULL &&
		e->driver.capture_mode(&visit->capture_mode) == KVT_CUDA_SUCCESS;
	return true;
}

void kvt_cuda_leave(struct kvt_gpu_engine *e, const struct kvt_cuda_visit *visit)
{
	int mode = visit->capture_mode;
	void *context;

	if (visit->exchanged)
		(void)e->driver.capture_mode(&mode);
	(void)e->driver.context_pop(&context);
}
