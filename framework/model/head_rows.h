// A model with another number of rows in its embedding and its head than its checkpoint stores. Checkpoints of one
// tokenizer pad their vocabularies differently (Qwen2.5: 151936 rows and 152064), and a draft's logits must have a
// column for each of the target's. This module must not know which model needs it.
#pragma once
#include "framework/model/open_model.h"

namespace foretoken {

// `rows`: at least as many as the tokenizer has ids. Rows beyond are cut off; where some are missing, zeros are
// appended and their logits are -inf, so that the ids have probability 0. A table in codes becomes dense where its rows
// change.
OpenModel with_head_rows(OpenModel model, int rows);

}  // namespace foretoken
