/*
 * controller_pins.c - keeps pins in a list that is searched linearly, since they are rare.
 */
#include <stdlib.h>
#include <string.h>

#include "lmcache/controller_pins.h"

struct kvt_controller_pin {
	struct kvt_key key;
	int64_t until_ns;
};

void kvt_controller_pins_finish(struct kvt_controller_pins *pins)
{
	free(pins->at);
	*pins = (struct kvt_controller_pins){0};
}

static struct kvt_controller_pin *find(struct kvt_controller_pins *pins, const struct kvt_key *key)
{
	for (size_t i = 0; i < pins->count; i++)
		if (memcmp(pins->at[i].key.bytes, key->bytes, KVT_KEY_BYTES) == 0)
			return &pins->at[i];
	return NULL;
}

size_t kvt_controller_pins_add(
	struct kvt_controller_pins *pins, const struct kvt_key *keys, size_t n, int64_t until_ns)
{
	size_t done = 0;

	if (pins->at == NULL)
		pins->at = malloc(KVT_CONTROLLER_PINS_MAX * sizeof(*pins->at));
	for (; pins->at != NULL && done < n; done++) {
		struct kvt_controller_pin *pin = find(pins, &keys[done]);

		if (pin == NULL && pins->count == KVT_CONTROLLER_PINS_MAX)
			break;
		if (pin == NULL)
			pin = &pins->at[pins->count++];
		*pin = (struct kvt_controller_pin){keys[done], until_ns};
	}
	return done;
}

size_t kvt_controller_pins_take(
	struct kvt_controller_pins *pins, int64_t now_ns, struct kvt_key *key, int64_t *next_ns)
{
	for (size_t i = 0; i < pins->count; i++) {
		if (pins->at[i].until_ns > now_ns) {
			if (pins->at[i].until_ns < *next_ns)
				*next_ns = pins->at[i].until_ns;
			continue;
		}
		*key = pins->at[i].key;
		pins->at[i] = pins->at[--pins->count];
		return 1;
	}
	return 0;
}
