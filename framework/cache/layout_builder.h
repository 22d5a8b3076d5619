// The rows of one forward, brought into the order and the padding in which a device attends to them. It must not know
// models, segments or trees: rows come with their places in their block tables.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "framework/cache/page_pool.h"
#include "kernels/layout.h"
#include "kernels/staging.h"

namespace foretoken {

class LayoutBuilder {
 public:
  // One row: where its key goes, its position, and the slot before which it attends to every slot (Layout). Behind
  // that, it attends to the ancestors whose bits `ancestors` sets.
  struct Row {
    std::int32_t slot = 0, position = 0, visible = 0;
    std::int32_t first = 0;                 // slots before it are not attended to, of a model with a window
    Token known = -1;                       // -1: absent, or the device has it at `at`
    const Token* at = nullptr;              // device address of a token that the host does not know; else null
    const std::uint64_t* inputs = nullptr;  // device addresses of features, as many as stage() is told
    int words() const { return (slot + 1 - visible + 63) / 64; }  // of ancestor bits
  };
  // Sets the bits of row `row` of table `table`, both counted as they were added; `words` are zeros before.
  using Ancestors = std::function<void(int table, int row, std::span<std::uint64_t> words)>;

  // Rows and block tables, and after padding (Backend::padded); Layout::longest and deepest of them.
  struct Part {
    int rows = 0, tables = 0, longest = 1, deepest = 1, padded_rows = 0, padded_tables = 0;
  };
  // The sizes of a forward, after padding.
  struct Extent {
    Part straight, rest;  // Layout::straight, where there is a table that branches; then the others
    int rows = 0, tables = 0, width = 1, words = 0, wanted = 0, deepest = 1, longest = 1;
    int candidates = 0;  // PageSelection::width
    bool all_wanted = false;
  };
  // What a model's forward gets, on the device.
  struct Staged {
    Layout layout;
    Tensor known, at;  // i32, u64 [rows]: see Backend::pick
    Tensor wanted;  // i32 [Extent::wanted]: the rows whose logits are computed, then zeros; absent where there is none
    Tensor features;  // u64 [rows, pieces]: see Backend::recall, zeros in padding; absent where pieces is 0
  };

  // `windows`: Row::first counts. `trash`: the page of padding.
  LayoutBuilder(Backend& backend, bool windows, PageId trash) : backend_(backend), windows_(windows), trash_(trash) {}

  void clear();
  // A sequence whose pages are these, which must live until stage(); the rows added next are its. `chosen` of the
  // candidates take the place of its first pages, where there are some: Layout::selection.
  void open(std::span<const PageId> pages, std::span<const PageId> candidates = {}, int chosen = 0);
  void add(const Row& row);
  // The rows that are added to this sequence from now on choose none of the candidates.
  void end_choice() { tables_.back().choosing = tables_.back().rows; }
  void want() { wanted_.push_back(std::int32_t(rows_.size()) - 1); }  // the logits of the row that was added last
  // The last `rows` rows attend to one another in both directions.
  void join(int rows);

  int rows() const { return int(rows_.size()); }
  int wanted() const { return int(wanted_.size()); }
  // The order, in which sequences whose rows branch come last, so that a device may attend to the others apart, and the
  // sizes. After all rows were added.
  const Extent& arrange();
  // `all`: sets Layout::all_ancestors; empty: it stays absent.
  Staged stage(Staging& staging, int pieces, const Ancestors& ancestors, const Ancestors& all = {}) const;

 private:
  struct Table {
    std::span<const PageId> pages, candidates;
    int chosen = 0;
    int begin = 0, rows = 0;  // of `rows_`
    bool branches = false;
    int choosing = -1;  // rows that choose; -1: all
  };

  void pad(Part& part) const;
  void fill_rows(const Layout& host, const Ancestors& ancestors, const Ancestors& all) const;
  void fill_inputs(int pieces, const Tensor& known, const Tensor& at, const Tensor& features) const;
  void fill_tables(const Layout& host) const;
  void fill_selection(const PageSelection& host) const;
  void fill_wanted(const Tensor& wanted) const;

  Backend& backend_;
  bool windows_;
  PageId trash_;
  std::vector<Row> rows_;             // as they were added
  std::vector<Table> tables_;         // likewise
  std::vector<std::int32_t> wanted_;  // of `rows_`
  std::vector<int> order_;            // tables in the order of the layout
  std::vector<std::int32_t> places_;  // of `rows_` in the layout
  bool mutual_ = false;
  Extent extent_;
};

}  // namespace foretoken
