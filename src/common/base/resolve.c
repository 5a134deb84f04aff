/*
 * resolve.c - resolves a host name, at once or on a separate thread.
 *
 * A question has two owners, the function's caller and the thread; the last of them frees it.
 */
#include "base/resolve.h"

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

struct kvw_resolve {
	_Atomic int owners;
	_Atomic bool answered; /* set with release order: addresses and error are valid then */
	int error;             /* error of getaddrinfo */
	int wake;              /* owned */
	char host[HOST_BYTES];
	uint16_t port;
	struct kvw_resolve_addresses addresses;
};

int kvw_resolve_now(const char *host, uint16_t port, int flags, struct kvw_resolve_addresses *out)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
	struct addrinfo *found = NULL;
	size_t count = 0;
	char text[8];
	int error;

	snprintf(text, sizeof(text), "%u", port);
	error = getaddrinfo(host, text, &hints, &found);
	if (error != 0)
		return error;
	for (struct addrinfo *a = found; a != NULL && count < KVW_RESOLVE_MAX; a = a->ai_next) {
		struct kvw_resolve_address *to = &out->items[count];

		if (a->ai_addrlen > sizeof(to->to))
			continue;
		memcpy(&to->to, a->ai_addr, a->ai_addrlen);
		to->len = a->ai_addrlen;
		count++;
	}
	freeaddrinfo(found);
	if (count == 0)
		return EAI_NONAME;
	out->count = count;
	return 0;
}

bool kvw_resolve_literal(const char *host, uint16_t port, struct kvw_resolve_addresses *out)
{
	size_t len = strlen(host);

	if (port != 0)
		return kvw_resolve_now(host, port, AI_NUMERICHOST, out) == 0;
	memset(&out->items[0], 0, sizeof(out->items[0]));
	out->items[0].to.local.sun_family = AF_UNIX;
	if (len >= sizeof(out->items[0].to.local.sun_path))
		return false;
	memcpy(out->items[0].to.local.sun_path, host, len + 1);
	out->items[0].len = sizeof(out->items[0].to.local);
	out->count = 1;
	return true;
}

void kvw_resolve_drop(struct kvw_resolve *question)
{
	if (question == NULL ||
		atomic_fetch_sub_explicit(&question->owners, 1, memory_order_acq_rel) > 1)
		return;
	close(question->wake);
	free(question);
}

static void *resolve_thread(void *self)
{
	struct kvw_resolve *question = self;
	uint64_t one = 1;

	question->error = kvw_resolve_now(question->host, question->port, 0, &question->addresses);
	atomic_store_explicit(&question->answered, true, memory_order_release);
	/* the write fails only if the counter is full, and then the reader wakes anyway */
	(void)!write(question->wake, &one, sizeof(one));
	kvw_resolve_drop(question);
	return NULL;
}

/* Starts a detached thread, in which all signals are blocked. */
static bool start_thread(struct kvw_resolve *question)
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

enum kvw_err kvw_resolve_begin(const char *host, uint16_t port, int wake, struct kvw_resolve **out)
{
	struct kvw_resolve *question = calloc(1, sizeof(*question));

	if (question == NULL)
		return KVW_ENOMEM;
	snprintf(question->host, sizeof(question->host), "%s", host);
	question->port = port;
	question->wake = fcntl(wake, F_DUPFD_CLOEXEC, 0);
	if (question->wake < 0)
		goto fail;
	atomic_store_explicit(&question->owners, 2, memory_order_relaxed);
	if (!start_thread(question))
		goto fail_wake;
	*out = question;
	return KVW_OK;
fail_wake:
	close(question->wake);
fail:
	free(question);
	return KVW_ENOMEM;
}

bool kvw_resolve_answered(
	struct kvw_resolve *question, struct kvw_resolve_addresses *out, const char **why)
{
	if (!atomic_load_explicit(&question->answered, memory_order_acquire))
		return false;
	*out = question->addresses;
	*why = question->error == 0 ? NULL : gai_strerror(question->error);
	return true;
}
