/*
 * fake_cuda.h - a driver without a device: libcuda's entry points over memory of this machine.
 *
 * What is handed to a stream runs later, whenever a caller asks, in an order of the seed's
 * choosing that
 * respects streams and events: a wait that was forgotten gives wrong bytes. Addresses, pieces of pinned
 * memory and contexts are checked as a driver and a device would. Any call can be made to fail.
 *
 * Loaded by dlopen like the driver; a test reaches the functions below by dlsym of the same file.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

enum fake_cost { FAKE_COPY, FAKE_BATCHED, FAKE_KERNEL_ACROSS, FAKE_KERNEL_INSIDE, FAKE_COSTS };

struct fake_control {
	void (*seed)(uint64_t seed);
	/* The nth call from now on (1: the next) fails with this error and has no effect; 0: none. */
	void (*arm)(uint64_t nth, int error);
	uint64_t (*calls)(void); /* since the last arm() */
	const char *(*failed)(void); /* the call that failed since then; NULL: none did */
	void (*pause)(bool pause); /* true: calls do not count and do not fail: the test's own */
	void (*persist)(const char *name, int error); /* each call of it fails; NULL: none any more */
	void (*hold)(bool hold); /* true: nothing that streams have is run */
	void (*idle)(bool idle); /* true: what is run takes its time and copies nothing */
	void (*no_batches)(bool none); /* the driver says that it cannot */
	/* Nanoseconds for one piece and for a KiB; now() counts what was run. */
	void (*cost)(enum fake_cost what, int64_t fixed_ns, int64_t kib_ns);
	int64_t (*now)(void *self);
	uint64_t (*misuses)(void); /* what a real device would not have forgiven */
	uint64_t (*launches)(void); /* of kernels that copy */
	uint64_t (*turns)(void);    /* ... that turn keys */
	uint64_t (*batches)(void);
	uint64_t (*widest)(void); /* most blocks of one launch */
	uint64_t (*alive)(void);  /* streams, events, memory, registrations, modules, contexts */
	void (*keep)(void);   /* remembers what is alive ... */
	void (*forget)(void); /* ... and ends all else */
	void (*order)(char *text, uint32_t bytes); /* copies as they were run: 'u' up, 'd' down */
	void (*delay)(void *stream, uint32_t steps); /* fake_cuda_delay */
};

const struct fake_control *fake_cuda_control(void);

/* What the stream gets from here on comes late: it does nothing for so many steps first, while others
 * go on. */
void fake_cuda_delay(void *stream, uint32_t steps);

#endif
