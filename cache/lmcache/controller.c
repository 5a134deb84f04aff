/*
 * controller.c - connects the parts of a worker: names, queue of changes, link and thread.
 *
 *	stored, removed --> names (which chunks, by both names)
 *	                --> queue of changes --thread--> link --> controller
 *	commands, full syncs <------------- thread <---- link
 *
 * One lock covers changes of names and queue together, so that a walk over the names and the changes queued since its
 * begin together give the true contents, whichever entries the walk met. A thread holds the lock for a look-up, or for
 * a piece of a walk; never while it sends.
 *
 * Once the thread has taken all changes, it sleeps until the next one, waits BATCH_NS for further changes, and passes
 * all of them to the link.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "base/thread.h"
#include "lmcache/chunk_names.h"
#include "lmcache/controller.h"
#include "lmcache/controller_pins.h"
#include "lmcache/controller_recipe.h"

#define BATCH_NS     (5 * 1000 * 1000)
#define TAKE_AT_ONCE 512   /* most changes taken from the queue while the lock is held */
#define WALK_PIECE   4096u /* most names looked at while the lock is held */
#define WAIT_MOST_MS 1000
#define TEXT         KVT_CONTROLLER_TEXT_MAX

struct change {
	uint64_t key;
	uint8_t location;
	bool admit;
};

struct kvt_controller {
	const struct kvt_surroundings *s; /* borrowed */
	struct kvt_controller_actions actions;
	struct kvw_lmcache_recipe recipe; /* owns the recipe's seed */
	char *seed;
	int64_t pin_ns;
	uint32_t locations;

	pthread_mutex_t lock; /* guards the members below */
	struct kvt_chunk_names *names;
	struct change *queue; /* a ring */
	uint32_t queue_size, queue_first, queue_count;
	bool overflow; /* changes were dropped, so a full sync is needed */
	bool stopped;
	struct kvt_controller_stats
		stats; /* as of the last turn of the thread; counters of this file are up to date */

	/* The members below are used by the thread, or by the caller that steps. */
	void *zmq;
	struct kvt_controller_link *link;
	struct kvt_controller_pins pins;
	bool was_registered;

	bool threaded;
	pthread_t thread;
	int wake; /* eventfd; -1 without a thread */
	_Atomic bool awake, stop;
};

/* --- reports of tiers ------------------------------------------------------------------------- */

static bool location_of(const struct kvt_controller *c, uint32_t tier, uint32_t *location)
{
	*location = tier == KVT_TIER_NVME;
	return (tier == KVT_TIER_L1 || tier == KVT_TIER_NVME) && *location < c->locations;
}

static void wake(struct kvt_controller *c)
{
	if (c->threaded && !atomic_exchange(&c->awake, true))
		(void)!eventfd_write(c->wake, 1);
}

/* Needs the lock. */
static void add(struct kvt_controller *c, uint32_t location, bool admit, uint64_t key)
{
	if (c->queue_count == c->queue_size) {
		c->overflow = true;
		c->stats.queue_drops++;
		return;
	}
	c->queue[(c->queue_first + c->queue_count) % c->queue_size] =
		(struct change){key, (uint8_t)location, admit};
	c->queue_count++;
}

void kvt_controller_stored(struct kvt_controller *c, uint32_t tier, const struct kvt_key *key,
	const struct kvt_blocks *names)
{
	enum kvt_chunk_news news = KVT_CHUNK_NOTHING;
	uint32_t location;

	if (c == NULL || names == NULL || !names->has_lmcache_hash ||
		!location_of(c, tier, &location))
		return;
	pthread_mutex_lock(&c->lock);
	if (!c->stopped)
		news = kvt_chunk_names_add(c->names, location, key, names->lmcache_hash);
	c->stats.unnamed += news == KVT_CHUNK_NO_ROOM;
	if (news == KVT_CHUNK_TOLD)
		add(c, location, true, names->lmcache_hash);
	pthread_mutex_unlock(&c->lock);
	if (news == KVT_CHUNK_TOLD)
		wake(c);
}

void kvt_controller_removed(struct kvt_controller *c, uint32_t tier, const struct kvt_key *key)
{
	enum kvt_chunk_news news = KVT_CHUNK_NOTHING;
	uint32_t location;
	uint64_t hash;

	if (c == NULL || !location_of(c, tier, &location))
		return;
	pthread_mutex_lock(&c->lock);
	if (!c->stopped)
		news = kvt_chunk_names_remove(c->names, location, key, &hash);
	if (news == KVT_CHUNK_TOLD)
		add(c, location, false, hash);
	pthread_mutex_unlock(&c->lock);
	if (news == KVT_CHUNK_TOLD)
		wake(c);
}

/* --- requests of the link --------------------------------------------------------------------- */

static bool all_keys(void *self, uint32_t location, uint64_t **keys, uint32_t *count)
{
	struct kvt_controller *c = self;
	size_t room = 0, used = 0;
	uint64_t *out = NULL, *grown;
	uint32_t cursor = 0;

	do {
		if (room - used < WALK_PIECE) {
			room = 2 * room + WALK_PIECE;
			grown = realloc(out, room * sizeof(*out));
			if (grown == NULL) {
				free(out);
				return false;
			}
			out = grown;
		}
		pthread_mutex_lock(&c->lock);
		used += kvt_chunk_names_walk(c->names, location, &cursor, WALK_PIECE, out + used);
		pthread_mutex_unlock(&c->lock);
	} while (cursor != 0);
	*keys = out;
	*count = (uint32_t)used;
	return true;
}

static bool is_location(
	const struct kvt_controller *c, const struct kvt_controller_message *m, uint32_t *location)
{
	*location = strcmp(m->location, KVT_CONTROLLER_DISK) == 0;
	return (*location == 1 || strcmp(m->location, KVT_CONTROLLER_CPU) == 0) &&
	       *location < c->locations;
}

static void clear(struct kvt_controller *c, const struct kvt_controller_message *m,
	struct kvt_controller_buf *answer)
{
	uint32_t location;
	uint64_t tokens = 0;

	if (is_location(c, m, &location) && location == 0)
		tokens = c->actions.clear(c->actions.self);
	kvt_note(c->s, KVT_LOG_INFO, "controller: memory cleared, %llu tokens",
		(unsigned long long)tokens);
	kvt_controller_put_number(answer, "ClearWorkerRetMsg", "num_tokens", tokens);
}

/* Returns how many chunks of a prompt, from the first on, a location holds. */
static size_t find_chunks(struct kvt_controller *c, uint32_t location, const uint64_t *hashes,
	size_t n, struct kvt_key *keys)
{
	size_t found = 0;

	pthread_mutex_lock(&c->lock);
	while (found < n && kvt_chunk_names_find(c->names, location, hashes[found], &keys[found]))
		found++;
	pthread_mutex_unlock(&c->lock);
	return found;
}

static uint64_t pin_tokens(
	struct kvt_controller *c, uint32_t location, const uint32_t *tokens, uint32_t count)
{
	size_t most = (size_t)count / c->recipe.chunk_size + 1, n = 0;
	uint64_t *hashes = malloc(most * sizeof(*hashes)), state, pinned;
	struct kvt_key *keys = malloc(most * sizeof(*keys));

	if (hashes == NULL || keys == NULL || kvw_lmcache_begin(&c->recipe, &state) != KVW_OK ||
		kvw_lmcache_hash(&c->recipe, &state, tokens, count, hashes, most, &n) != KVW_OK)
		n = 0;
	if (n > 0)
		n = find_chunks(c, location, hashes, n, keys);
	if (n > 0)
		n = kvt_controller_pins_add(&c->pins, keys, n, kvt_now(c->s) + c->pin_ns);
	if (n > 0)
		c->actions.pin(c->actions.self, keys, n, true);
	free(hashes);
	free(keys);
	pinned = (uint64_t)n * c->recipe.chunk_size;
	return pinned < count ? pinned : count;
}

static void pin(struct kvt_controller *c, const struct kvt_controller_message *m,
	struct kvt_controller_buf *answer)
{
	uint32_t location;
	uint64_t tokens = 0;

	if (is_location(c, m, &location) && m->tokens != NULL)
		tokens = pin_tokens(c, location, m->tokens, m->token_count);
	kvt_controller_put_number(answer, "PinWorkerRetMsg", "num_tokens", tokens);
}

static void on_command(
	void *self, const struct kvt_controller_message *m, struct kvt_controller_buf *answer)
{
	struct kvt_controller *c = self;
	char text[192];

	if (strcmp(m->type, "HealthWorkerMsg") == 0) {
		kvt_controller_put_number(answer, "HealthWorkerRetMsg", "error_code", 0);
	} else if (strcmp(m->type, "ClearWorkerMsg") == 0) {
		clear(c, m, answer);
	} else if (strcmp(m->type, "PinWorkerMsg") == 0) {
		pin(c, m, answer);
	} else if (strcmp(m->type, "MoveWorkerMsg") == 0 ||
		   strcmp(m->type, "CompressWorkerMsg") == 0 ||
		   strcmp(m->type, "DecompressWorkerMsg") == 0) {
		snprintf(text, sizeof(text), "Worker error: %s is not supported", m->type);
		kvt_controller_put_error(answer, text);
	} else {
		snprintf(text, sizeof(text), "Unknown message: %s", m->type);
		kvt_controller_put_error(answer, text);
	}
}

/* --- a turn ----------------------------------------------------------------------------------- */

/* Passes the changes in the queue to the link. Returns their number. */
static size_t drain(struct kvt_controller *c, int64_t now_ns)
{
	struct change changes[TAKE_AT_ONCE];
	size_t total = 0;
	uint32_t n;
	bool overflow;

	do {
		pthread_mutex_lock(&c->lock);
		for (n = 0; n < TAKE_AT_ONCE && c->queue_count > 0; n++) {
			changes[n] = c->queue[c->queue_first];
			c->queue_first = (c->queue_first + 1) % c->queue_size;
			c->queue_count--;
		}
		overflow = c->overflow;
		c->overflow = false;
		pthread_mutex_unlock(&c->lock);
		for (uint32_t i = 0; i < n; i++)
			kvt_controller_link_change(
				c->link, changes[i].location, changes[i].admit, changes[i].key);
		if (overflow)
			kvt_controller_link_resync(c->link, now_ns);
		total += n;
	} while (n == TAKE_AT_ONCE && total < c->queue_size);
	return total;
}

static void end_pins(struct kvt_controller *c, int64_t now_ns, int64_t *next_ns)
{
	struct kvt_key key;

	while (kvt_controller_pins_take(&c->pins, now_ns, &key, next_ns) > 0)
		c->actions.pin(c->actions.self, &key, 1, false);
}

static void publish_stats(struct kvt_controller *c)
{
	struct kvt_controller_link_stats link;

	kvt_controller_link_stats(c->link, &link);
	if (link.registered != c->was_registered)
		kvt_note(c->s, KVT_LOG_INFO, "controller: %s",
			link.registered ? "registered" : "does not answer; it is asked again");
	c->was_registered = link.registered;
	pthread_mutex_lock(&c->lock);
	c->stats.link = link;
	c->stats.pinned = c->pins.count;
	pthread_mutex_unlock(&c->lock);
}

size_t kvt_controller_step(struct kvt_controller *c, int64_t *next_ns)
{
	int64_t now_ns;
	size_t done;

	if (c == NULL || c->link == NULL)
		return 0;
	now_ns = kvt_now(c->s);
	done = drain(c, now_ns);
	done += kvt_controller_link_step(c->link, now_ns, next_ns);
	end_pins(c, now_ns, next_ns);
	publish_stats(c);
	return done;
}

static void *run(void *arg)
{
	struct kvt_controller *c = arg;
	const struct timespec pause = {.tv_nsec = BATCH_NS};
	int64_t next_ns, wait_ns;
	eventfd_t count;
	size_t done = 1;

	while (!atomic_load(&c->stop)) {
		/* set before the queue is read, so that later changes wake the thread again */
		atomic_store(&c->awake,
			false);
		next_ns = INT64_MAX;
		done = kvt_controller_step(c, &next_ns);
		wait_ns = next_ns == INT64_MAX ? INT64_MAX : next_ns - kvt_now(c->s);
		if (wait_ns > WAIT_MOST_MS * INT64_C(1000000))
			wait_ns = WAIT_MOST_MS * INT64_C(1000000);
		kvt_controller_link_wait(c->link, c->wake,
			done > 0 || wait_ns <= 0 ? 0 : (long)(wait_ns / 1000000 + 1));
		(void)!eventfd_read(c->wake, &count);
		if (atomic_load(&c->awake) && !atomic_load(&c->stop))
			nanosleep(&pause, NULL);
	}
	return NULL;
}

/* --- life ------------------------------------------------------------------------------------- */

static bool is_set(const char *text)
{
	return text != NULL && text[0] != '\0';
}

/* Finds the source address of packets to the controller; "127.0.0.1" if that fails. */
static void find_ip(const char *address, char out[TEXT])
{
	const char *at = strncmp(address, "tcp://", 6) == 0 ? address + 6 : address;
	const char *colon = strrchr(at, ':');
	struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);
	char host[TEXT];
	int fd = -1;

	snprintf(out, TEXT, "127.0.0.1");
	if (colon == NULL || colon == at || strncmp(address, "ipc://", 6) == 0)
		return;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - at), at);
	if (host[0] == '[') {
		memmove(host, host + 1, strlen(host));
		host[strcspn(host, "]")] = '\0';
	}
	if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
		return;
	fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
		getsockname(fd, (struct sockaddr *)&own, &len) == 0)
		(void)!getnameinfo(
			(struct sockaddr *)&own, len, out, TEXT, NULL, 0, NI_NUMERICHOST);
	if (fd >= 0)
		close(fd);
	freeaddrinfo(found);
}

/* The worker's port; 0: any. */
static uint16_t port_of(const char *ports, uint32_t worker)
{
	const char *at = ports;

	for (; worker > 0 && at != NULL; worker--) {
		at = strchr(at, ',');
		at = at == NULL ? NULL : at + 1;
	}
	return at == NULL ? 0 : (uint16_t)strtoul(at, NULL, 10);
}

static void find_instance(const struct kvt_config *config, char out[TEXT])
{
	char host[100] = "worker";

	if (is_set(config->controller_instance)) {
		snprintf(out, TEXT, "%s", config->controller_instance);
		return;
	}
	(void)!gethostname(host, sizeof(host) - 1);
	snprintf(out, TEXT, "kvtier_%s_%lld", host, (long long)getpid());
}

static bool open_link(struct kvt_controller *c, const struct kvt_config *config, char *why)
{
	char ip[TEXT], instance[TEXT];
	uint32_t worker = config->controller_worker < 0 ? config->rank
							: (uint32_t)config->controller_worker;
	struct kvt_controller_link_config link = {.zmq = c->zmq,
		.pull = config->controller_pull,
		.reply = config->controller_reply,
		.heartbeat = config->controller_heartbeat,
		.instance = instance,
		.ip = ip,
		.bind = config->controller_bind,
		.port = port_of(config->controller_ports, worker),
		.worker = worker,
		.signed_keys = c->recipe.algorithm == KVW_LMCACHE_BUILTIN,
		.locations = c->locations,
		.heartbeat_ns = (int64_t)config->controller_heartbeat_ns,
		.heartbeat_delay_ns = (int64_t)config->controller_heartbeat_delay_ns,
		.answer_ns = (int64_t)config->controller_answer_ns,
		.sync_delay_ns = (int64_t)config->controller_sync_delay_ns,
		.sync_batch = config->controller_sync_batch,
		.queue = config->controller_queue,
		.user = {.self = c, .command = on_command, .keys = all_keys}};

	find_instance(config, instance);
	if (is_set(config->controller_ip))
		snprintf(ip, sizeof(ip), "%s", config->controller_ip);
	else
		find_ip(config->controller_pull, ip);
	c->link = kvt_controller_link_create(&link, kvt_now(c->s), why);
	if (c->link == NULL)
		return false;
	kvt_note(c->s, KVT_LOG_INFO, "controller: reporting to %s as instance %s, worker %u, at %s",
		config->controller_pull, instance, worker, ip);
	return true;
}

/* Starts the thread with signals blocked, since the caller's threads handle them, and lets it run
 * on all cores. */
static bool start_thread(struct kvt_controller *c)
{
	cpu_set_t everywhere;

	c->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (c->wake < 0)
		return false;
	c->threaded = true; /* set here because the thread reads it */
	c->threaded = kvw_thread_start(&c->thread, run, c) == 0;
	if (!c->threaded)
		return false;
	memset(&everywhere, 0xff, sizeof(everywhere));
	pthread_setaffinity_np(c->thread, sizeof(everywhere), &everywhere);
	pthread_setname_np(c->thread, "kvt-controller");
	return true;
}

static enum kvt_status make(struct kvt_controller *c, const struct kvt_config *config, char *why)
{
	const char *fault = kvt_controller_recipe(config, &c->recipe);

	snprintf(why, TEXT, "out of memory");
	if (fault != NULL) {
		snprintf(why, TEXT, "%s", fault);
		return KVT_MISS;
	}
	if (c->recipe.seed != NULL) {
		c->seed = strdup(c->recipe.seed);
		c->recipe.seed = c->seed;
	}
	c->pin_ns = (int64_t)config->controller_pin_ns;
	c->locations = is_set(config->nvme_path) ? 2 : 1;
	c->queue_size = config->controller_queue;
	c->queue = malloc((size_t)c->queue_size * sizeof(*c->queue));
	c->names = kvt_chunk_names_create(config->controller_max_chunks);
	c->zmq = zmq_ctx_new();
	if (c->queue == NULL || c->names == NULL || c->zmq == NULL ||
		(c->recipe.seed == NULL) != (c->seed == NULL))
		return KVT_ENOMEM;
	if (!open_link(c, config, why))
		return KVT_MISS;
	if (config->threads != KVT_THREADS_CALLER && !start_thread(c)) {
		snprintf(why, TEXT, "no thread for it");
		return KVT_MISS;
	}
	return KVT_OK;
}

enum kvt_status kvt_controller_create(const struct kvt_config *config,
	const struct kvt_surroundings *s, const struct kvt_controller_actions *actions,
	struct kvt_controller **out)
{
	struct kvt_controller *c;
	enum kvt_status status;
	char why[TEXT];

	if (!is_set(config->controller_pull))
		return KVT_MISS;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return KVT_ENOMEM;
	c->s = s;
	c->actions = *actions;
	c->wake = -1;
	pthread_mutex_init(&c->lock, NULL);
	status = make(c, config, why);
	if (status == KVT_OK) {
		*out = c;
		return KVT_OK;
	}
	kvt_note(s, KVT_LOG_WARN, "controller: %s; nothing is reported to it", why);
	kvt_controller_destroy(c);
	return status;
}

void kvt_controller_stop(struct kvt_controller *c)
{
	int64_t next_ns = INT64_MAX;

	if (c == NULL)
		return;
	if (c->threaded) {
		atomic_store(&c->stop, true);
		(void)!eventfd_write(c->wake, 1);
		pthread_join(c->thread, NULL);
		c->threaded = false;
	}
	pthread_mutex_lock(&c->lock);
	c->stopped = true;
	pthread_mutex_unlock(&c->lock);
	/* sends the changes in the queue before the good-bye */
	(void)kvt_controller_step(c, &next_ns);
	kvt_controller_link_destroy(c->link);
	c->link = NULL;
}

void kvt_controller_destroy(struct kvt_controller *c)
{
	if (c == NULL)
		return;
	kvt_controller_stop(c);
	if (c->wake >= 0)
		close(c->wake);
	if (c->zmq != NULL)
		zmq_ctx_term(c->zmq);
	kvt_controller_pins_finish(&c->pins);
	kvt_chunk_names_destroy(c->names);
	pthread_mutex_destroy(&c->lock);
	free(c->queue);
	free(c->seed);
	free(c);
}

/* --- observation ------------------------------------------------------------------------------ */

void kvt_controller_stats(struct kvt_controller *c, struct kvt_controller_stats *out)
{
	*out = (struct kvt_controller_stats){0};
	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	*out = c->stats;
	out->registered = out->link.registered;
	out->chunks = kvt_chunk_names_count(c->names);
	out->memory_bytes =
		kvt_chunk_names_bytes(c->names) + (uint64_t)c->queue_size * sizeof(*c->queue);
	pthread_mutex_unlock(&c->lock);
}
