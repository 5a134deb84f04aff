/*
 * duty_round.c - see duty_round.h. One command, a script: takes, keeps or gives back the field, and
 * returns whose it is now.
 */
#include "sharing/duty_round.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "redis/words.h"

#define EVERY_NS  KVW_NS_PER_S
#define REPLY_NS  (500 * KVW_NS_PER_MS)
#define NAME_ROOM 600

static const char script[] =
	"local a=redis.call('HGETALL',KEYS[1]) local h=a[2] or '' "
	"if ARGV[2]=='1' and (h=='' or h==ARGV[1]) then "
	"redis.call('HSET',KEYS[1],'by',ARGV[1]) redis.call('PEXPIRE',KEYS[1],ARGV[3]) "
	"h=ARGV[1] elseif h==ARGV[1] then redis.call('HDEL',KEYS[1],'by') h='' end return {h}";

struct kvw_duty_round {
	struct kvw_duty *duty;
	const char *what;
	int64_t next_ns;
	char name[NAME_ROOM], origin[24];
	struct kvw_redis_command command;
	struct iovec part;
	bool open; /* a command is under way */
	char text[sizeof(script) + 2 * NAME_ROOM];
};

static void done(struct kvw_redis_command *command)
{
	struct kvw_duty_round *round = command->user;
	const struct kvw_redis_element *found = command->found;

	round->open = false;
	if (command->status == KVW_OK && command->reply == KVW_REDIS_ARRAY &&
		command->element_count == 1 && found->data != NULL) {
		bool elsewhere = found->len > 0 && strcmp(found->data, round->origin) != 0;
		bool before = kvw_clock_ns() < atomic_load(&round->duty->elsewhere_ns);

		atomic_store(&round->duty->elsewhere_ns,
			elsewhere ? kvw_clock_ns() + KVW_DUTY_LIFE_NS : 0);
		if (elsewhere != before)
			kvw_info("sharing", "%s: %s", round->what,
				elsewhere ? "another replica does it"
					  : "no other replica does it any more");
	} else if (command->status == KVW_OK && command->reply == KVW_REDIS_ERROR) {
		kvw_debug("sharing", "%s: redis says \"%s\"", round->what, command->text);
	}
	if (found != NULL)
		kvw_redis_elements_free(command->found, command->element_count);
	command->found = NULL;
}

static void submit(struct kvw_duty_round *round, struct kvw_redis *redis, int64_t now_ns)
{
	char *at = kvw_redis_put_count(round->text, 7);

	at = kvw_redis_put_text(at, "EVAL");
	at = kvw_redis_put_word(at, script, sizeof(script) - 1);
	at = kvw_redis_put_text(at, "1");
	at = kvw_redis_put_text(at, round->name);
	at = kvw_redis_put_text(at, round->origin);
	at = kvw_redis_put_number(at, atomic_load(&round->duty->wanted));
	at = kvw_redis_put_number(at, KVW_DUTY_LIFE_NS / KVW_NS_PER_MS);
	round->part = (struct iovec){round->text, (size_t)(at - round->text)};
	round->command = (struct kvw_redis_command){
		.parts = &round->part,
		.part_count = 1,
		.slot = kvw_redis_slot(round->name, strlen(round->name)),
		.elements = true,
		.element_limit = 256,
		.deadline_ns = now_ns + REPLY_NS,
		.done = done,
		.user = round,
	};
	round->open = true;
	kvw_redis_submit(redis, &round->command);
}

int64_t kvw_duty_round_step(struct kvw_duty_round *round, struct kvw_redis *redis, int64_t now_ns)
{
	if (now_ns < round->next_ns)
		return round->next_ns;
	round->next_ns = now_ns + EVERY_NS;
	if (!round->open)
		submit(round, redis, now_ns);
	return round->next_ns;
}

enum kvw_err kvw_duty_round_create(const struct kvw_config *config, const char *name,
	struct kvw_duty *duty, struct kvw_duty_round **out)
{
	struct kvw_duty_round *round = calloc(1, sizeof(*round));
	uint64_t origin;

	if (round == NULL)
		return KVW_ENOMEM;
	if (getrandom(&origin, sizeof(origin), 0) != (ssize_t)sizeof(origin))
		origin = (uint64_t)kvw_clock_wall_ns();
	round->duty = duty;
	round->what = name;
	(void)snprintf(round->origin, sizeof(round->origin), "%016llx", (unsigned long long)origin);
	(void)snprintf(round->name, sizeof(round->name), "{%.250s:%.250s}:%s",
		config->replicas_prefix, config->replicas_group, name);
	*out = round;
	return KVW_OK;
}

void kvw_duty_round_destroy(struct kvw_duty_round *round)
{
	free(round);
}
