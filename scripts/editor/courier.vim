" Vim syntax for the documents and transcripts of courier
" Put this file into ~/.vim/syntax/ and these lines into your vimrc:
"
"   au BufRead,BufNewFile */projects/*/{config,env,prompt},*/{personas,workflows}/*,*/tools/* setf courier
"   au BufRead */sandboxes/*/messages,*/runs/*/messages setf courier | setl autoread nomodifiable
if exists('b:current_syntax')
  finish
endif
" lines go on below, also where vi is imitated
let s:cpo_save = &cpo
set cpo&vim

" config, env, personas, workflows, tools
syn match courierComment "^\s*#.*"
syn match courierSection "^\[\(step\|loop\)\s\+\S\+\]"
syn match courierAssign "^\s*[A-Za-z_][A-Za-z0-9_]*\s*=" contains=courierKey
syn keyword courierKey contained backend tool template model designer_model
      \ checker_model thinking timeout on_timeout salvage_ahead when_done
      \ turn_timeout memory cpu repo base branch sync pr pr_labels git_name
      \ git_email setup learn budget network github_api learning_tool
      \ learning_model discovery_prompt max_active local_bind local_path
      \ description role persona instructions skills loop max on_max command
      \ continue format keys memory_file skills_dir commands_dir env service
      \ efforts
syn match courierValue "\%(=\s*\)\@<=\(auto\|e2b\|local\|on\|off\|host\|kill\|pause\|keep\|turn\|end\|draft\|none\|fail\|continue\|low\|medium\|high\|max\)\s*$"
syn match courierDuration "\%(=\s*\)\@<=\d\+[smhd]\?\s*$"
syn match courierHole "{\(model\|thinking\|system_prompt_file\|session\)}"

" messages
syn match courierUser "^── \S\+Z  user  .*"
syn match courierAgent "^── \S\+Z  assistant  .*"
syn match courierEnd "^── \S\+Z  #\d\+ completed.*"
syn match courierError "^── \S\+Z  #\d\+ error.*"
syn match courierTool "^  ▸ .*"
syn match courierNote "^  ↻ .*"

hi def link courierComment Comment
hi def link courierSection Title
hi def link courierKey Identifier
hi def link courierValue Constant
hi def link courierDuration Number
hi def link courierHole Special
hi def link courierUser Statement
hi def link courierAgent Type
hi def link courierEnd Comment
hi def link courierError Error
hi def link courierTool PreProc
hi def link courierNote WarningMsg

let b:current_syntax = 'courier'
let &cpo = s:cpo_save
unlet s:cpo_save
