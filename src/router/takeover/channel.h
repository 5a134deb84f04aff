/*
 * channel.h - sends and receives the packets of a takeover, with descriptors, over a Unix socket of
 * type SOCK_SEQPACKET.
 *
 * Such a socket keeps packets whole, so that no part of a message has to be waited for.
 *
 * Threads: one.
 */
#ifndef KVW_TAKEOVER_CHANNEL_H
#define KVW_TAKEOVER_CHANNEL_H

#include <stdbool.h>

#include "takeover/message.h"

/* Sends a packet without waiting. KVW_EAGAIN: the peer's queue is full; KVW_ECLOSED: the peer has
 * gone. */
enum kvw_err kvw_takeover_send(int channel, const struct kvw_takeover_message *message,
	const int *fds, size_t fd_count) KVW_MUST_CHECK;

/*
 * Receives one packet without waiting. The caller owns the *fd_count descriptors in fds, which are
 * close-on-exec. A packet that cannot be used leaves none open. KVW_EPROTO: it is not a message;
 * KVW_ELIMIT: it is longer than a message may be; KVW_EINVAL: it has another version;
 * KVW_ENOTFOUND: it lacks descriptors that it names. KVW_EAGAIN: no packet has come; KVW_ECLOSED:
 * the peer has gone.
 */
enum kvw_err kvw_takeover_receive(int channel, struct kvw_takeover_message *out,
	int fds[KVW_TAKEOVER_FDS], size_t *fd_count) KVW_MUST_CHECK;

/* Returns whether the peer is a process of the same user. *pid: its process id. */
bool kvw_takeover_peer(int channel, int64_t *pid) KVW_MUST_CHECK;

#endif
