/* policies.h - declares the policies of policies.def. */
#ifndef KVT_POLICIES_H
#define KVT_POLICIES_H

#include "policies/policy.h"

#define KVT_DEFAULT_POLICY(name)
#define KVT_POLICY(name) extern const struct kvt_policy_ops kvt_policy_##name;
#include "policies/policies.def"
#undef KVT_POLICY
#undef KVT_DEFAULT_POLICY

#endif
