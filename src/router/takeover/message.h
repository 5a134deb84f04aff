/*
 * message.h - the messages between a running kvway and the process that takes over. Each is text,
 * in one packet.
 *
 *	kvway-takeover 1 socket
 *	use listen
 *	address 0.0.0.0:8080
 *	count 2
 *
 * The first line names the protocol, its version and the kind; each further line is a name, a space
 * and a value of printable ASCII. Unknown names are skipped, so that a later version can add
 * fields. A version that changes the meaning of fields gets another number, and is refused by this
 * one.
 *
 * Keys of session tickets are sent as text, too, since a packet is gone once it was read, while a
 * memory file may be swapped to a disk. The owner of a message with keys wipes it after use.
 *
 * Plain data, no I/O. Threads: any.
 */
#ifndef KVW_TAKEOVER_MESSAGE_H
#define KVW_TAKEOVER_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "server/sockets.h"

#define KVW_TAKEOVER_BYTES 2048 /* longest packet; older versions are sent at most 1024 bytes */
#define KVW_TAKEOVER_KEYS  240  /* bytes of keys in a packet */
#define KVW_TAKEOVER_FDS   16   /* with a packet */

enum kvw_takeover_kind {
	KVW_TAKEOVER_HELLO,   /* from the new process: asks for the sockets; version, pid */
	/* From the old process: the sockets follow; version, pid, count: number of usable workers,
	 * snapshot, tickets. */
	KVW_TAKEOVER_WELCOME,
	KVW_TAKEOVER_SOCKET,  /* from the old process: use, address, and `count` descriptors */
	/* from the old process: the last socket was sent; count: descriptors in all packets
	 * together */
	KVW_TAKEOVER_END,
	/* From the new process, if the old one offers it: asks for a snapshot. From the old one:
	 * the snapshot, in one descriptor; without a descriptor: why there is none. */
	KVW_TAKEOVER_SNAPSHOT,
	/* From the new process, if the old one offers it: asks for the keys of session tickets.
	 * From the old one: the keys of one use, with the age in seconds of the newest as count;
	 * without keys: the last were sent. */
	KVW_TAKEOVER_TICKETS,
	KVW_TAKEOVER_READY,   /* new: I accept; caches */
	/* From the old process, before GOODBYE, if READY allows it: what workers have reported of
	 * their caches, in one descriptor. */
	KVW_TAKEOVER_CACHES,
	KVW_TAKEOVER_GOODBYE, /* from the old process: it accepts no more connections */
	/* from the old process, instead of any answer: it refuses, says why, and goes on serving */
	KVW_TAKEOVER_REFUSED,
	KVW_TAKEOVER_KINDS
};

struct kvw_takeover_message {
	enum kvw_takeover_kind kind;
	enum kvw_socket_use use; /* KVW_SOCKET_USES: a use that this version does not know */
	uint32_t count;
	uint32_t snapshot, tickets; /* WELCOME: 1: the new process may ask for it */
	uint32_t caches;            /* READY: 1: CACHES may be sent */
	int64_t pid;
	char version[32];
	char address[KVW_SOCKET_TEXT];
	char why[256];
	size_t keys_len;
	unsigned char keys[KVW_TAKEOVER_KEYS]; /* [keys_len] */
};

/* Parses a message. KVW_EPROTO: it is not a message; KVW_EINVAL: it is of another version of the
 * protocol. */
enum kvw_err kvw_takeover_parse(
	const char *text, size_t len, struct kvw_takeover_message *out) KVW_MUST_CHECK;

/* Writes a message and returns the length of its text. Unprintable characters become '?'. */
size_t kvw_takeover_format(
	const struct kvw_takeover_message *message, char text[KVW_TAKEOVER_BYTES]);

/* "hello", "welcome", ... */
const char *kvw_takeover_kind_name(enum kvw_takeover_kind kind);

#endif
