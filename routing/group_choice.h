/*
 * group_choice.h - which group of a model a request goes to: weighted rendezvous hashing.
 *
 * Each group draws a number from the request's key and its own name, and the smallest -ln(u) /
 * weight wins. So a group gets its part of all keys by weight; every replica that knows the same
 * names and weights chooses alike; and a group whose weight grows takes keys from the others in the
 * proportion of theirs, while no key moves between two groups that did not change. The order behind
 * the winner says where a request goes whose group has no worker.
 *
 * Pure functions.
 */
#ifndef KVW_GROUP_CHOICE_H
#define KVW_GROUP_CHOICE_H

#include <stddef.h>
#include <stdint.h>

#define KVW_GROUPS_MOST 64 /* of one model */

struct kvw_group_share {
	uint64_t hash; /* of the group's name */
	double weight; /* >= 0 */
};

/* Indexes of the groups with a weight above 0, the chosen one first; returns how many. count is at
 * most KVW_GROUPS_MOST, the room in order. */
size_t kvw_group_order(
	const struct kvw_group_share *shares, size_t count, uint64_t key, uint8_t *order);

#endif
