# Unpacks the weights of the demo models, which git holds packed: weights.tar.xz of each model becomes its
# model.safetensors. Included by the build; without one: cmake -P cmake/models.cmake
file(GLOB_RECURSE packed "${CMAKE_CURRENT_LIST_DIR}/../experiments/models/weights.tar.xz")
foreach(archive IN LISTS packed)
  cmake_path(GET archive PARENT_PATH model)
  if(NOT CMAKE_SCRIPT_MODE_FILE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${archive}")
  endif()
  if("${archive}" IS_NEWER_THAN "${model}/model.safetensors")  # which holds too where there is none
    # Elsewhere and then renamed: a build that is interrupted leaves no half of a file.
    string(RANDOM LENGTH 12 name)
    file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${model}/${name}" TOUCH)
    file(RENAME "${model}/${name}/model.safetensors" "${model}/model.safetensors")
    file(REMOVE_RECURSE "${model}/${name}")
  endif()
endforeach()
