/*
 * kvtierd_resolve.c - a thread that looks up one name on request.
 *
 * getaddrinfo(3) may take long and cannot be cancelled, so it runs on a thread of its own, and
 * destroy may take as long as a lookup. A host given as an address has no thread.
 */
#include "tiers/kvtierd/kvtierd_resolve.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

#define AGAIN_NS 5000000000

struct kvtierd_resolver {
	const struct kvt_surroundings *s;
	char host[256];
	uint16_t port;
	bool has_thread;
	pthread_t thread;
	pthread_mutex_t lock; /* guards the members below */
	pthread_cond_t wake;
	struct kvw_resolve_addresses addresses;
	int64_t asked_ns; /* time when the last lookup was requested */
	bool wanted, ending;
};

/* Looks the name up like kvw_resolve_now. If that fails, the addresses stay as they were. */
static int look_up(struct kvtierd_resolver *r, int flags)
{
	struct kvw_resolve_addresses found;
	int err = kvw_resolve_now(r->host, r->port, flags, &found);

	if (err != 0)
		return err;
	pthread_mutex_lock(&r->lock);
	r->addresses = found;
	pthread_mutex_unlock(&r->lock);
	return 0;
}

static void look_up_name(struct kvtierd_resolver *r)
{
	int err = look_up(r, 0);

	if (err != 0)
		kvt_note(r->s, KVT_LOG_WARN, "kvtierd: %s is not found: %s", r->host,
			gai_strerror(err));
}

static void *run(void *arg)
{
	struct kvtierd_resolver *r = arg;

	pthread_mutex_lock(&r->lock);
	while (!r->ending) {
		if (!r->wanted) {
			(void)pthread_cond_wait(&r->wake, &r->lock);
			continue;
		}
		pthread_mutex_unlock(&r->lock);
		look_up_name(r);
		pthread_mutex_lock(&r->lock);
		r->wanted = false;
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* Starts the thread. If that fails, a name keeps the addresses of its first lookup. */
static void start(struct kvtierd_resolver *r)
{
	r->has_thread = kvw_thread_start(&r->thread, run, r) == 0;
}

enum kvt_status kvtierd_resolver_create(const char *host, uint16_t port, bool threads,
	const struct kvt_surroundings *s, struct kvtierd_resolver **out)
{
	struct kvtierd_resolver *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return KVT_ENOMEM;
	r->s = s;
	(void)snprintf(r->host, sizeof(r->host), "%s", host);
	r->port = port;
	(void)pthread_mutex_init(&r->lock, NULL);
	(void)pthread_cond_init(&r->wake, NULL);
	if (look_up(r, AI_NUMERICHOST) != 0) {
		look_up_name(r);
		r->asked_ns = kvt_now(s);
		if (threads)
			start(r);
	}
	*out = r;
	return KVT_OK;
}

void kvtierd_resolver_destroy(struct kvtierd_resolver *r)
{
	if (r == NULL)
		return;
	if (r->has_thread) {
		pthread_mutex_lock(&r->lock);
		r->ending = true;
		(void)pthread_cond_signal(&r->wake);
		pthread_mutex_unlock(&r->lock);
		(void)pthread_join(r->thread, NULL);
	}
	(void)pthread_cond_destroy(&r->wake);
	(void)pthread_mutex_destroy(&r->lock);
	free(r);
}

void kvtierd_resolver_get(struct kvtierd_resolver *r, struct kvw_resolve_addresses *out)
{
	pthread_mutex_lock(&r->lock);
	*out = r->addresses;
	pthread_mutex_unlock(&r->lock);
}

void kvtierd_resolver_again(struct kvtierd_resolver *r)
{
	int64_t now_ns = kvt_now(r->s);

	if (!r->has_thread)
		return;
	pthread_mutex_lock(&r->lock);
	if (!r->wanted && now_ns - r->asked_ns >= AGAIN_NS) {
		r->asked_ns = now_ns;
		r->wanted = true;
		(void)pthread_cond_signal(&r->wake);
	}
	pthread_mutex_unlock(&r->lock);
}
