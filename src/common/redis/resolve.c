/*
 * resolve.c - the addresses of a host name, by a thread of its own.
 *
 * A question has two owners, the asker and the thread; the last of them frees it.
 */
#include "redis/resolve.h"

#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOST_BYTES  256
#define STACK_BYTES (256u << 10)

struct kvw_redis_resolve {
	_Atomic int owners;
	_Atomic bool answered; /* release: addresses and error are set */
	int error;             /* of getaddrinfo */
	int wake;              /* owned */
	char host[HOST_BYTES];
	char port[8];
	struct kvw_redis_addresses addresses;
};

static int look_up(const char *host, const char *port, int flags, struct kvw_redis_addresses *out)
{
	struct addrinfo hints = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
	struct addrinfo *found = NULL;
	int error = getaddrinfo(host, port, &hints, &found);

	out->count = 0;
	if (error != 0)
		return error;
	for (struct addrinfo *a = found; a != NULL && out->count < KVW_REDIS_RESOLVE_MAX;
		a = a->ai_next) {
		struct kvw_redis_address *to = &out->items[out->count];

		if (a->ai_addrlen > sizeof(to->to))
			continue;
		memcpy(&to->to, a->ai_addr, a->ai_addrlen);
		to->len = a->ai_addrlen;
		out->count++;
	}
	freeaddrinfo(found);
	return out->count > 0 ? 0 : EAI_NONAME;
}

bool kvw_redis_resolve_literal(const char *host, uint16_t port, struct kvw_redis_addresses *out)
{
	char text[8];
	size_t len = strlen(host);

	if (port != 0) {
		snprintf(text, sizeof(text), "%u", port);
		return look_up(host, text, AI_NUMERICHOST | AI_NUMERICSERV, out) == 0;
	}
	memset(&out->items[0], 0, sizeof(out->items[0]));
	out->items[0].to.local.sun_family = AF_UNIX;
	if (len >= sizeof(out->items[0].to.local.sun_path))
		return false;
	memcpy(out->items[0].to.local.sun_path, host, len + 1);
	out->items[0].len = sizeof(out->items[0].to.local);
	out->count = 1;
	return true;
}

void kvw_redis_resolve_drop(struct kvw_redis_resolve *question)
{
	if (question == NULL ||
		atomic_fetch_sub_explicit(&question->owners, 1, memory_order_acq_rel) > 1)
		return;
	close(question->wake);
	free(question);
}

static void *resolve_thread(void *self)
{
	struct kvw_redis_resolve *question = self;
	uint64_t one = 1;

	question->error =
		look_up(question->host, question->port, AI_NUMERICSERV, &question->addresses);
	atomic_store_explicit(&question->answered, true, memory_order_release);
	(void)!write(question->wake, &one, sizeof(one)); /* full: the reader has a wake-up waiting already */
	kvw_redis_resolve_drop(question);
	return NULL;
}

/* A detached thread that takes no signals. */
static bool start(struct kvw_redis_resolve *question)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all;
	bool good;

	if (pthread_attr_init(&attributes) != 0)
		return false;
	sigfillset(&all);
	good = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
	       pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 &&
	       pthread_attr_setsigmask_np(&attributes, &all) == 0 &&
	       pthread_create(&thread, &attributes, resolve_thread, question) == 0;
	pthread_attr_destroy(&attributes);
	return good;
}

enum kvw_err kvw_redis_resolve_begin(
	const char *host, uint16_t port, int wake, struct kvw_redis_resolve **out)
{
	struct kvw_redis_resolve *question = calloc(1, sizeof(*question));

	if (question == NULL)
		return KVW_ENOMEM;
	snprintf(question->host, sizeof(question->host), "%s", host);
	snprintf(question->port, sizeof(question->port), "%u", port);
	question->wake = fcntl(wake, F_DUPFD_CLOEXEC, 0);
	if (question->wake < 0)
		goto fail;
	atomic_store_explicit(&question->owners, 2, memory_order_relaxed);
	if (!start(question))
		goto fail_wake;
	*out = question;
	return KVW_OK;
fail_wake:
	close(question->wake);
fail:
	free(question);
	return KVW_ENOMEM;
}

bool kvw_redis_resolve_answered(
	struct kvw_redis_resolve *question, struct kvw_redis_addresses *out, const char **why)
{
	if (!atomic_load_explicit(&question->answered, memory_order_acquire))
		return false;
	*out = question->addresses;
	*why = question->error == 0 ? NULL : gai_strerror(question->error);
	return true;
}
