/* metrics_copy.c - keeps the newest text of /metrics for loops. */
#include "admin/metrics_copy.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "admin/metrics.h"
#include "base/clock.h"

#define AGE_MOST_NS KVW_NS_PER_S

enum kvw_err kvw_metrics_copy_init(struct kvw_metrics_copy *copy)
{
	*copy = (struct kvw_metrics_copy){.lock = PTHREAD_MUTEX_INITIALIZER};
	copy->ask_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return copy->ask_fd < 0 ? KVW_EIO : KVW_OK;
}

void kvw_metrics_copy_finish(struct kvw_metrics_copy *copy)
{
	kvw_metrics_text_put(copy->newest);
	copy->newest = NULL;
	if (copy->ask_fd >= 0)
		close(copy->ask_fd);
	copy->ask_fd = -1;
}

struct kvw_metrics_text *kvw_metrics_copy_get(struct kvw_metrics_copy *copy, int64_t now_ns)
{
	struct kvw_metrics_text *text;
	uint64_t one = 1;

	pthread_mutex_lock(&copy->lock);
	text = copy->newest;
	if (text != NULL && now_ns - text->made_ns <= AGE_MOST_NS)
		atomic_fetch_add_explicit(&text->references, 1, memory_order_relaxed);
	else
		text = NULL;
	pthread_mutex_unlock(&copy->lock);
	if (text == NULL && !atomic_exchange(&copy->asked, true))
		(void)!write(copy->ask_fd, &one, sizeof(one));
	return text;
}

void kvw_metrics_text_put(struct kvw_metrics_text *text)
{
	/* The thread that puts the last reference sees everything that others did before they put
	 * theirs. */
	if (text == NULL ||
		atomic_fetch_sub_explicit(&text->references, 1, memory_order_acq_rel) > 1)
		return;
	free(text->data);
	free(text);
}

void kvw_metrics_copy_renew(
	struct kvw_metrics_copy *copy, struct kvw_metrics *metrics, int64_t now_ns)
{
	struct kvw_metrics_text *text = calloc(1, sizeof(*text)), *old;
	uint64_t count;

	(void)!read(copy->ask_fd, &count, sizeof(count));
	if (text != NULL &&
		kvw_metrics_render(metrics, now_ns, false, &text->data, &text->len) == KVW_OK) {
		atomic_store_explicit(&text->references, 1, memory_order_relaxed);
		text->made_ns = now_ns;
		pthread_mutex_lock(&copy->lock);
		old = copy->newest;
		copy->newest = text;
		pthread_mutex_unlock(&copy->lock);
		kvw_metrics_text_put(old);
	} else {
		free(text);
	}
	atomic_store(&copy->asked, false);
}
