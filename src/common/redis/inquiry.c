/*
 * inquiry.c - a question of a topology to one server.
 */
#include <stdio.h>
#include <string.h>

#include "redis/inquiry.h"

static void inquiry_done(struct kvw_redis_command *command)
{
	struct kvw_redis_inquiry *q = command->user;

	q->state = KVW_REDIS_INQUIRY_BACK;
}

void kvw_redis_inquiry_ask(struct kvw_redis_inquiry *q, struct kvw_redis *r,
	struct kvw_redis_server *server, const char *const *words, size_t count,
	uint32_t element_limit, int64_t deadline_ns)
{
	size_t len = (size_t)snprintf(q->request, sizeof(q->request), "*%zu\r\n", count);

	for (size_t i = 0; i < count; i++)
		len += (size_t)snprintf(q->request + len, sizeof(q->request) - len,
			"$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
	memset(&q->command, 0, sizeof(q->command));
	q->part = (struct iovec){q->request, len};
	q->command.parts = &q->part;
	q->command.part_count = 1;
	q->command.slot = KVW_REDIS_ANY_SLOT;
	q->command.elements = true;
	q->command.element_limit = element_limit;
	q->command.deadline_ns = deadline_ns;
	q->command.done = inquiry_done;
	q->command.user = q;
	q->state = KVW_REDIS_INQUIRY_OUT;
	kvw_redis_client_send(r, server, &q->command);
}

bool kvw_redis_inquiry_answered(const struct kvw_redis_inquiry *q, char *why, size_t room)
{
	const struct kvw_redis_command *c = &q->command;

	if (c->status == KVW_OK && c->reply == KVW_REDIS_ARRAY)
		return true;
	if (c->status == KVW_ETIMEDOUT)
		snprintf(why, room, "no answer in time");
	else if (c->status == KVW_OK && c->reply == KVW_REDIS_NIL)
		snprintf(why, room, "knows nothing of it");
	else
		snprintf(why, room, "%s",
			c->text[0] != '\0' ? c->text : "an answer that makes no sense");
	return false;
}

void kvw_redis_inquiry_finish(struct kvw_redis_inquiry *q)
{
	kvw_redis_elements_free(q->command.found, q->command.element_count);
	q->command.found = NULL;
	q->command.element_count = 0;
	q->state = KVW_REDIS_INQUIRY_IDLE;
}

/* The first two redirections of a command cause no pause: a slot may have moved, and then its
 * key. */
int64_t kvw_redis_inquiry_pause_ns(struct kvw_redis *r, uint32_t redirects)
{
	uint32_t doubled = redirects < 8 ? redirects : 8;
	uint32_t most_us;

	if (redirects <= 2)
		return 0;
	most_us = 250u << doubled; /* 2 ms to 64 ms */
	return (int64_t)(most_us / 2 + kvw_redis_client_random(r, most_us / 2)) * 1000;
}
