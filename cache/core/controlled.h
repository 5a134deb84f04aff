/*
 * controlled.h - lets LMCache's controller command the cache.
 */
#ifndef KVT_CONTROLLED_H
#define KVT_CONTROLLED_H

#include "core/core.h"

/* Starts reporting to the controller, if one is configured. KVT_ENOMEM. */
enum kvt_status kvt_controlled_start(struct kvt *k) KVT_MUST_CHECK;

#endif
