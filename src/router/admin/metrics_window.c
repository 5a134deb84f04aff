/*
 * metrics_window.c - keeps samples of the last minute, five seconds apart.
 *
 * Rates (vllm:current_qps, vllm:avg_latency, CPU percent) are differences between now and the
 * oldest sample that is not older than a minute. A sample copies five numbers per worker, so a rate
 * costs the same at any load; the control thread takes one every five seconds with or
 * without scrapes, and a scrape takes one if it finds none fresh enough.
 */
#include <dirent.h>
#include <sched.h>
#include <sys/stat.h>
#include <time.h>

#include "admin/metrics_shard.h"
#include "fleet/fleet.h"

static struct kvw_window_worker worker_now(const struct kvw_metrics *metrics, size_t slot)
{
	struct kvw_window_worker sum = {0};

	for (size_t i = 0; i < metrics->loops; i++) {
		const struct kvw_worker_tally *tally = &metrics->shards[i].workers[slot];

		sum.finished += atomic_load_explicit(&tally->finished, memory_order_relaxed);
		sum.latency_ns += atomic_load_explicit(&tally->latency_ns, memory_order_relaxed);
		sum.output_tokens += kvw_counted(&tally->output_tokens);
		sum.decode_tokens += kvw_counted(&tally->decode_tokens);
		sum.decode_ns += kvw_counted(&tally->decode_ns);
	}
	return sum;
}

static int64_t cpu_now_ns(void)
{
	struct timespec t = {0, 0};

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Newer kernels report the number as the directory's size; on older ones the entries are
 * counted. */
static uint64_t count_fds(void)
{
	struct stat status;
	struct dirent *entry;
	uint64_t n = 0;
	DIR *dir;

	if (stat("/proc/self/fd", &status) == 0 && status.st_size > 0)
		return (uint64_t)status.st_size;
	dir = opendir("/proc/self/fd");
	if (dir == NULL)
		return 0;
	while ((entry = readdir(dir)) != NULL)
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n > 0 ? n - 1 : 0; /* without the descriptor of the directory itself */
}

void kvw_window_sample(struct kvw_metrics *metrics, int64_t now_ns)
{
	struct kvw_window *window = &metrics->window;

	if (window->count > 0 && now_ns - window->at_ns[window->newest] < KVW_WINDOW_STEP_NS)
		return;
	window->newest = window->count == 0 ? 0 : (window->newest + 1) % KVW_WINDOW_SAMPLES;
	if (window->count < KVW_WINDOW_SAMPLES)
		window->count++;
	window->at_ns[window->newest] = now_ns;
	window->cpu_ns[window->newest] = cpu_now_ns();
	window->open_fds = count_fds();
	for (size_t slot = 0; slot < metrics->fleet->count + 1; slot++)
		window->workers[window->newest * metrics->worker_slots + slot] =
			worker_now(metrics, slot);
}

/* Returns the index of the sample `back` steps before the newest. */
static size_t sample_index(const struct kvw_window *window, size_t back)
{
	return (window->newest + KVW_WINDOW_SAMPLES - back) % KVW_WINDOW_SAMPLES;
}

int64_t kvw_window_delta(const struct kvw_metrics *metrics, size_t slot, int64_t now_ns,
	struct kvw_window_worker *delta)
{
	const struct kvw_window *window = &metrics->window;
	struct kvw_window_worker now = worker_now(metrics, slot), then;
	size_t back, oldest;

	*delta = (struct kvw_window_worker){0};
	if (window->count == 0)
		return 0;
	back = window->count - 1;
	while (back > 0 &&
		now_ns - window->at_ns[sample_index(window, back)] > KVW_WINDOW_LENGTH_NS)
		back--;
	oldest = sample_index(window, back);
	then = window->workers[oldest * metrics->worker_slots + slot];
	delta->finished = now.finished - then.finished;
	delta->latency_ns = now.latency_ns - then.latency_ns;
	delta->output_tokens = now.output_tokens - then.output_tokens;
	delta->decode_tokens = now.decode_tokens - then.decode_tokens;
	delta->decode_ns = now.decode_ns - then.decode_ns;
	return now_ns - window->at_ns[oldest];
}

void kvw_window_forget(struct kvw_metrics *metrics, size_t slot)
{
	for (size_t i = 0; i < KVW_WINDOW_SAMPLES; i++)
		metrics->window.workers[i * metrics->worker_slots + slot] =
			(struct kvw_window_worker){0};
}

double kvw_window_cpu_percent(const struct kvw_metrics *metrics, int64_t now_ns)
{
	const struct kvw_window *window = &metrics->window;
	size_t back = window->count > 1 ? 1 : 0, index;
	int64_t span_ns;
	cpu_set_t cores;
	int count = 1;

	if (window->count == 0)
		return 0;
	index = sample_index(window, back);
	span_ns = now_ns - window->at_ns[index];
	if (span_ns <= 0)
		return 0;
	if (sched_getaffinity(0, sizeof(cores), &cores) == 0)
		count = CPU_COUNT(&cores);
	return 100.0 * (double)(cpu_now_ns() - window->cpu_ns[index]) / (double)span_ns / count;
}
