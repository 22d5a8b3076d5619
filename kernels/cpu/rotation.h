// Cosines and sines of rotary embeddings, computed once per position and kept: computing them again would cost more
// than the rotation. This module must not know heads.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace foretoken {

class Rotations {
 public:
  // The table of one set of frequencies. It stays valid as long as this object.
  class Table {
   public:
    Table(std::span<const float> frequencies, float factor)
        : frequencies_(frequencies.begin(), frequencies.end()), factor_(factor) {}
    // factor * cos(position * f[i]) for all i, then the sines. The table must cover the position.
    const float* at(std::int32_t position) const {
      return chunks_[std::size_t(position / kChunk)].get() + std::size_t(position % kChunk) * 2 * frequencies_.size();
    }

   private:
    friend class Rotations;
    static constexpr std::int32_t kChunk = 256;
    void cover(std::int32_t position);

    std::vector<float> frequencies_;
    float factor_;
    std::vector<std::unique_ptr<float[]>> chunks_;
  };

  // The table of these frequencies and this factor, extended to these positions.
  const Table& table(std::span<const float> frequencies, float factor, std::span<const std::int32_t> positions);

 private:
  std::mutex lock_;
  std::vector<std::unique_ptr<Table>> tables_;
};

}  // namespace foretoken
