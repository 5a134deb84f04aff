/*
 * regroup.h - a request goes from its group of workers to another one.
 */
#ifndef KVW_PROXY_REGROUP_H
#define KVW_PROXY_REGROUP_H

#include "proxy/groups.h"

/* To the group that kvw_groups_other names, whose name for the model is written into the body. Uses the loop's
 * candidates. KVW_ENOWORKER: there is none. KVW_EINVAL: its name cannot be written into this body, which is as it was.
 * KVW_ENOMEM: the body must not be sent. */
enum kvw_err kvw_regroup(struct kvw_exchange *x, kvw_groups_untried_fn *untried) KVW_MUST_CHECK;

#endif
