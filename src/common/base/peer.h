/*
 * peer.h - whether the other end of a TCP connection is still there.
 *
 * A peer that loses power or network says nothing. How kvway finds that out depends on the
 * direction for which it waits: with no data under way the kernel's keepalive probes find it, with
 * data under way they are not sent, and unanswered repeats must end the connection.
 * TCP_USER_TIMEOUT does that, but also where the peer is there and merely keeps its window shut;
 * where that is allowed for longer, kvw_peer_vanished looks.
 *
 * Threads: any; a descriptor is its owner's.
 */
#ifndef KVW_PEER_H
#define KVW_PEER_H

#include <stdbool.h>
#include <stdint.h>

/* Keepalive that ends the connection when nothing came from the peer for gone_ms, rounded to
 * seconds, two at least; 0: the system's settings. A listening socket hands the setting on to the
 * connections that it accepts. user_timeout: data that the peer does not take for gone_ms
 * ends the connection, too. A failure leaves the system's settings. */
void kvw_peer_watch(int fd, int64_t gone_ms, bool user_timeout);

/* Has nothing come from the peer for gone_ms, although the kernel asked it again? False for gone_ms
 * 0. */
bool kvw_peer_vanished(int fd, int64_t gone_ms);

#endif
