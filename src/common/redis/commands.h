/*
 * commands.h - a list of commands, linked by their members `next` and `prev`. A command is on one
 * list at a time. All zeroes is an empty list; lists allocate nothing.
 */
#ifndef KVW_REDIS_COMMANDS_H
#define KVW_REDIS_COMMANDS_H

#include "redis/redis.h"

struct kvw_redis_commands {
	struct kvw_redis_command *first, *last;
	size_t count;
};

static inline void kvw_redis_commands_add(
	struct kvw_redis_commands *list, struct kvw_redis_command *c)
{
	c->next = NULL;
	c->prev = list->last;
	if (list->last != NULL)
		list->last->next = c;
	else
		list->first = c;
	list->last = c;
	list->count++;
}

static inline void kvw_redis_commands_add_first(
	struct kvw_redis_commands *list, struct kvw_redis_command *c)
{
	c->prev = NULL;
	c->next = list->first;
	if (list->first != NULL)
		list->first->prev = c;
	else
		list->last = c;
	list->first = c;
	list->count++;
}

static inline void kvw_redis_commands_remove(
	struct kvw_redis_commands *list, struct kvw_redis_command *c)
{
	if (c->prev != NULL)
		c->prev->next = c->next;
	else
		list->first = c->next;
	if (c->next != NULL)
		c->next->prev = c->prev;
	else
		list->last = c->prev;
	c->next = c->prev = NULL;
	list->count--;
}

static inline struct kvw_redis_command *kvw_redis_commands_take(struct kvw_redis_commands *list)
{
	struct kvw_redis_command *c = list->first;

	if (c != NULL)
		kvw_redis_commands_remove(list, c);
	return c;
}

#endif
