/*
 * regroup.h - a request goes from its group of workers to another one.
 */
#ifndef KVW_PROXY_REGROUP_H
#define KVW_PROXY_REGROUP_H

#include "proxy/groups.h"

/* To the group that kvw_groups_other names, whose name for the model is written into the body. False: there is none, or
 * no memory. */
bool kvw_regroup(struct kvw_exchange *x, kvw_groups_untried_fn *untried);

#endif
